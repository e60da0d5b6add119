"""Damaged logs: a reader gives a snapshot, or says that there is none; no other error leaves it."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.manifest import _manifest_cache

from metastore.lake import resolution
from metastore.lake.delta import reading as delta
from metastore.lake.iceberg import reading as iceberg
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.lake.values import LakeUnreadable
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector

SEEDS = 40
ROWS = pa.table({"id": pa.array(range(50), pa.int64()), "name": ["x"] * 50})


@pytest.fixture(scope="module")
def delta_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("delta") / "t"
    write_deltalake(folder, ROWS)
    delete_by_vector(folder, [1, 2])
    return folder, sorted((folder / "_delta_log").glob("*.json"))


@pytest.fixture(scope="module")
def iceberg_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    table = catalog_at(tmp_path_factory.mktemp("iceberg")).create_table("db.t", ROWS.schema)
    table.append(ROWS)
    delete_by_position(table, [1, 2])
    folder = Path(table.location())
    return folder, sorted([*(folder / "metadata").iterdir(), *(folder / "data").glob("*deletes*")])


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file's content cut, with flipped bits, with zeros, with strange bytes, or none at all."""
    at = chance.randrange(len(content))
    match chance.randrange(5):
        case 0:
            return content[:at]
        case 1:
            flipped = bytearray(content)
            for _ in range(chance.choice((1, 3, 20))):
                flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            return bytes(flipped)
        case 2:
            return content[:at] + bytes(16) + content[at + 16 :]
        case 3:
            return content[:at] + chance.randbytes(9) + content[at:]
        case _:
            return b""


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_damage_is_a_typed_error(request: pytest.FixtureRequest, tmp_path: Path, format: str, seed: int) -> None:
    folder, files = request.getfixturevalue(f"{format}_log")
    chance = random.Random(seed)  # noqa: S311 - no secrets
    file = chance.choice(files)
    content = file.read_bytes()
    file.write_bytes(damaged(content, chance))
    for cache in (delta._open_tables, resolution._pinned, _manifest_cache):
        cache.clear()
    iceberg._table.cache_clear()
    try:
        rows = pin_location(format, TablePlace(str(folder)), None, tmp_path).snapshot.rows
    except LakeUnreadable as failure:
        assert str(failure)
    else:
        assert rows is not None
    finally:
        file.write_bytes(content)
