"""Constants that agree in the bytes that histograms know of strings."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.selector.cardinality.counted import Counted

DOCUMENTS, PER_DOCUMENT = 4_000, 6


def name(number: int) -> str:
    """Return a key whose first 36 bytes are the same in all of them."""
    return f"urn:example:documents:of:the:archive:{number:08d}"


@pytest.fixture(scope="module", params=[1.0, 0.3])
def archive(request: pytest.FixtureRequest) -> Iterator[Counted]:
    pages = [name(number % DOCUMENTS) for number in range(DOCUMENTS * PER_DOCUMENT)]
    tables = {
        "documents": pa.table({"document": [name(number) for number in range(DOCUMENTS)]}),
        "pages": pa.table({"of_document": pages, "page": list(range(len(pages)))}),
    }
    groups = [[("documents", "document"), ("pages", "of_document")]]
    found = Counted(tables, groups, sampled=request.param, by_key=0.2)
    yield found
    found.connection.close()


def listed(*numbers: int) -> str:
    return ", ".join(f"'{name(number)}'" for number in numbers)


@pytest.mark.parametrize("numbers", [(17,), (3, 99, 2_001), tuple(range(40))])
def test_a_list_has_as_many_rows_as_its_values(archive: Counted, numbers: tuple[int, ...]) -> None:
    sql = f"SELECT page FROM pages WHERE of_document IN ({listed(*numbers)})"
    whole = archive.statistics["pages"].sample
    assert whole is not None
    within = 0.01 if whole.share >= 1.0 else 0.7
    assert archive.rows(sql) == pytest.approx(archive.count(sql), rel=within)


def test_what_no_list_has_in_common_with_another_leaves_nothing(archive: Counted) -> None:
    sql = (
        "SELECT p.page FROM pages p JOIN documents d ON p.of_document = d.document "
        f"WHERE p.of_document IN ({listed(1, 2, 3)}) AND d.document IN ({listed(7, 8)})"
    )
    assert archive.rows(sql) < 0.1


@pytest.mark.parametrize(("like", "kept"), [("%00000017", PER_DOCUMENT), ("%00000018", 0)])
def test_a_pattern_is_asked_of_each_value_of_a_list(archive: Counted, like: str, kept: int) -> None:
    """Neither is taken to be rare by itself."""
    sql = f"SELECT page FROM pages WHERE of_document IN ({listed(17)}) AND of_document LIKE '{like}'"
    assert archive.count(sql) == kept
    assert archive.rows(sql) == pytest.approx(kept, rel=0.7, abs=0.1)
