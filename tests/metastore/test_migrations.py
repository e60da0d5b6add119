from __future__ import annotations

from alembic import command
from sqlalchemy import Engine, inspect

from metastore.database import check_migrations, migrate, migration_config
from metastore.models import Base


def test_an_empty_database_gets_every_table_of_the_models(engine: Engine) -> None:
    migrate(engine)
    assert set(Base.metadata.tables) <= set(inspect(engine).get_table_names())


def test_models_and_migrations_agree(engine: Engine) -> None:
    migrate(engine)
    check_migrations(engine)


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    migrate(engine)
    migrate(engine)
    check_migrations(engine)


def test_the_first_schema_can_be_taken_away_again(engine: Engine) -> None:
    migrate(engine)
    config = migration_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    migrate(engine)
    check_migrations(engine)


def test_a_url_may_hold_per_cent_signs() -> None:
    url = "postgresql://ann:p%40ss@localhost/fusion"
    assert migration_config(url).get_main_option("sqlalchemy.url") == url
