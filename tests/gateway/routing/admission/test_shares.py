"""Several gateways with one budget: never above it together, nobody starves, nobody is passed over."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from engines.errors import EngineBusy
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.division import Budgets, Item, Report, content_of, divide, report_of
from gateway.routing.admission.shares import Shares
from gateway.routing.admission.values import DEFAULT_POOL, EngineBudget, Pool, Request, Resource
from gateway.security.principals import Principal
from tests.waiting import wait_until

FAST = EngineBudget("fast", slots=4, capacity_bytes=400, limit_bytes=300, guest_slots=1, guest_bytes=40, abreast=3)
SLOW = EngineBudget("slow", slots=3)
ETL = Pool("etl", slots=2, memory_bytes=200)
DEFAULT = Pool(DEFAULT_POOL)
ANN, BOB = (Principal(name, authenticated=True) for name in ("ann", "bob"))
AT_ONCE_S = 0.001


def _present(gateway: SharingGateway) -> int:
    return len(gateway.admission.waiting()) + len(gateway.admission.leases())


class Board:
    """Rows that gateways publish, as the metastore has them: one exchange at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[str, Any] = {}
        self.gateways: list[SharingGateway] = []

    def exchange_all(self, rounds: int = 3) -> None:
        """Let all exchange, so often that what one gives back is what another one gets."""
        for _ in range(rounds):
            for gateway in self.gateways:
                gateway.exchange()


class SharingGateway:
    """The admission of one of several gateways."""

    def __init__(self, board: Board, name: str, home: str = "home", local: frozenset[str] = frozenset()) -> None:
        engines, pools = (FAST, SLOW), (DEFAULT, ETL)
        self.wanting = threading.Event()
        self.admission = Admission(engines, pools, wanting=self.wanting.set)
        budgets = Budgets({e.name: e for e in engines}, {pool.name: pool for pool in pools}, local)
        self.shares = Shares(self.admission, budgets, home)
        self.shares.begin()
        self.name, self.board = name, board
        board.gateways.append(self)

    def exchange(self) -> None:
        with self.board.lock:
            others = {name: row for name, row in self.board.rows.items() if name != self.name}
            self.board.rows[self.name], _ = self.shares.exchange(self.name, others, time.time())
        self.shares.confirm()

    def leased(self) -> dict[str, Mapping[Resource, int]]:
        return dict(self.admission._holdings.leased())


def gateways(count: int, **options: Any) -> list[SharingGateway]:
    board = Board()
    made = [SharingGateway(board, f"g{number}", **options) for number in range(count)]
    board.exchange_all()
    return made


def lease(stack: ExitStack, gateway: SharingGateway, memory_bytes: int, **options: Any) -> None:
    request = Request("fast", memory_bytes, options.pop("principal", ANN), expected_s=10.0, **options)
    stack.enter_context(gateway.admission.lease(request, wait_s=AT_ONCE_S))


def asking(gateway: SharingGateway, request: Request) -> tuple[threading.Thread, threading.Event]:
    """Ask for a lease in a thread, and hold it until the event is set."""
    go_on, before = threading.Event(), _present(gateway)

    def run() -> None:
        with gateway.admission.lease(request, wait_s=60):
            go_on.wait(60)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: _present(gateway) > before, "it asks")
    return thread, go_on


def test_a_gateway_grants_its_part_at_once_and_never_that_of_others() -> None:
    one, two = gateways(2)
    with ExitStack() as stack:
        lease(stack, one, 100)
        lease(stack, two, 100)
        parts = [gateway.admission._holdings.limits("fast") for gateway in (one, two)]
        assert [part[Resource.SLOTS] for part in parts] == [2, 2]
        assert sum(part[Resource.BYTES] for part in parts) == FAST.shared_bytes
        assert sorted(part[Resource.GUEST_SLOTS] for part in parts) == [0, 1]
        assert one.admission.describe().engines[0].slots_held == 1  # not exchanged yet
        one.board.exchange_all()
        state = one.admission.describe()
        assert (state.engines[0].slots_held, state.engines[0].bytes_held) == (2, 200)


def test_a_large_statement_gets_what_idles_elsewhere_after_two_exchanges() -> None:
    one, two, three = gateways(3)
    thread, go_on = asking(one, Request("fast", 300, ANN))
    assert one.wanting.is_set()
    for gateway in (one, two, three, one):
        gateway.exchange()
    wait_until(lambda: not one.admission.waiting(), "it runs")
    go_on.set()
    thread.join()


def test_a_gateway_that_holds_all_lets_go_for_one_that_waits_elsewhere() -> None:
    one, two = gateways(2)
    threads = [asking(one, Request("fast", 90, ANN, expected_s=10.0)) for _ in range(3)]
    one.board.exchange_all()
    wait_until(lambda: not one.admission.waiting(), "all run")
    more = [asking(one, Request("fast", 90, ANN, expected_s=10.0)) for _ in range(3)]
    elsewhere = asking(two, Request("fast", 90, BOB, expected_s=10.0))
    one.board.exchange_all()
    one.wanting.clear()
    threads[0][1].set()  # what it gives back goes to the other gateway, though three wait here
    wait_until(one.wanting.is_set, "it says so")
    one.board.exchange_all()
    wait_until(lambda: not two.admission.waiting(), "the other user's one runs")
    assert len(one.admission.waiting()) == 3
    for _, go_on in (*threads, *more, elsewhere):
        go_on.set()
    while any(thread.is_alive() for thread, _ in (*threads, *more, elsewhere)):
        one.board.exchange_all()
        time.sleep(0.01)


def test_engines_of_different_homes_are_not_shared_and_pools_are() -> None:
    board = Board()
    one, two = (SharingGateway(board, name, home=name, local=frozenset({"fast"})) for name in ("a", "b"))
    board.exchange_all()
    for gateway in (one, two):
        limits = gateway.admission._holdings
        assert limits.limits("fast")[Resource.SLOTS] == FAST.slots
        assert limits.limits("pool:etl")[Resource.SLOTS] == 1
    assert sum(gateway.admission._holdings.limits("slow")[Resource.SLOTS] for gateway in (one, two)) == SLOW.slots


def test_the_part_of_one_that_is_gone_is_free() -> None:
    one, two = gateways(2)
    with ExitStack() as stack:
        lease(stack, two, 150)
        two.exchange()
        del one.board.rows[two.name]
        one.exchange()
        assert one.admission._holdings.limits("fast")[Resource.BYTES] == FAST.shared_bytes


@pytest.mark.parametrize("seed", range(3))
def test_together_they_never_hold_more_than_there_is_and_all_are_served(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    made = gateways(3)
    board, stopping = made[0].board, threading.Event()
    served: Counter[str] = Counter()
    wrong: list[str] = []

    def ask(gateway: SharingGateway, user: Principal, seed: int) -> None:
        mine = random.Random(seed)  # noqa: S311 - no secret
        for _ in range(12):
            pool = mine.choice(["", "etl"])
            request = Request("fast", mine.choice([20, 90, 190, 290]), user, pool, expected_s=mine.choice([0.01, 5.0]))
            with gateway.admission.lease(request, wait_s=60) as grant:
                time.sleep(mine.random() / 100)
                grant.raise_to(mine.choice([100, 300]))
                time.sleep(mine.random() / 100)
            served[user.name] += 1

    def beat(gateway: SharingGateway, seed: int) -> None:
        mine = random.Random(seed)  # noqa: S311 - no secret
        while not stopping.is_set():
            gateway.wanting.wait(0.02)
            gateway.wanting.clear()
            gateway.exchange()
            time.sleep(mine.random() / 200)

    def look() -> None:
        """Sum what is leased, with the locks of all admissions held, as no lease comes or goes meanwhile."""
        while not stopping.is_set():
            with ExitStack() as locked:
                for gateway in made:
                    locked.enter_context(gateway.admission._lock)
                sums: Counter[tuple[str, Resource]] = Counter()
                for gateway in made:
                    for name, amounts in gateway.leased().items():
                        for resource, amount in amounts.items():
                            sums[name, resource] += amount
            budgets = made[0].shares._budgets
            for (name, resource), amount in sums.items():
                place = ("pool:", name.removeprefix("pool:")) if name.startswith("pool:") else (name, "")
                limit = budgets.of(place).get(resource)
                if limit is not None and amount > limit:
                    wrong.append(f"{name}: {resource} {amount} of {limit}")
            time.sleep(0.0005)

    askers = [
        threading.Thread(target=ask, args=(gateway, user, chance.random()), daemon=True)
        for gateway in made
        for user in (ANN, BOB, BOB)
    ]
    others = [threading.Thread(target=beat, args=(gateway, chance.random()), daemon=True) for gateway in made]
    others.append(threading.Thread(target=look, daemon=True))
    for thread in (*others, *askers):
        thread.start()
    for thread in askers:
        thread.join(60)
    stopping.set()
    for thread in others:
        thread.join(60)
    assert not wrong
    assert served == {"ann": 36, "bob": 72}
    assert not any(board.gateways[0].leased()["fast"].values())


def test_a_division_is_the_same_for_all_and_within_the_budgets() -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    pools = {pool.name: pool for pool in (DEFAULT, ETL)}
    budgets = Budgets({"fast": FAST, "slow": SLOW}, pools, frozenset({"fast"}))
    for _ in range(200):
        reports = {
            f"g{number}": Report(
                chance.choice(["a", "b"]),
                tuple(
                    Item(
                        chance.choice(["fast", "slow"]),
                        chance.choice([DEFAULT_POOL, "etl"]),
                        "s",
                        chance.choice("xyz"),
                        chance.choice([0, 50, 300]),
                        chance.random() < 0.5,
                        chance.random(),
                        chance.random() < 0.5,
                        is_guest=chance.random() < 0.1,
                    )
                    for _ in range(chance.randrange(8))
                ),
            )
            for number in range(chance.randrange(1, 5))
        }
        parts = divide(reports, budgets)
        assert parts == divide(dict(reversed(reports.items())), budgets)
        sums: Counter[Any] = Counter()
        for part in parts.values():
            sums.update(part)
        for (place, resource), amount in sums.items():
            limit = budgets.of(place).get(resource)
            assert limit is None or amount == limit  # all of it is somebody's
        for report in reports.values():
            assert report_of(content_of(report)) == report


def test_a_gateway_whose_report_cannot_be_read_holds_everything() -> None:
    """One of a later release may publish more; this one goes on to renew, and takes nothing from it."""
    one, two = gateways(2)
    one.board.rows[two.name] = {"of": "a later release"}
    one.exchange()
    with ExitStack() as stack, pytest.raises(EngineBusy):
        lease(stack, one, 100)


def test_a_user_gets_his_share_over_all_gateways() -> None:
    """Bob asks one gateway and Ann two: each of them has half of the slots."""
    items = {
        "g0": [_waits("ann", 1), _waits("ann", 2), _waits("ann", 3)],
        "g1": [_waits("ann", 4), _waits("ann", 5), _waits("ann", 6)],
        "g2": [_waits("bob", 7), _waits("bob", 8), _waits("bob", 9)],
    }
    budgets = Budgets({"slow": EngineBudget("slow", slots=4)}, {DEFAULT_POOL: DEFAULT}, frozenset())
    parts = divide({name: Report("", tuple(of)) for name, of in items.items()}, budgets)
    slots = {name: part[("slow", ""), Resource.SLOTS] for name, part in parts.items()}
    assert slots == {"g0": 2, "g1": 0, "g2": 2}


def _waits(account: str, since_s: float) -> Item:
    return Item("slow", DEFAULT_POOL, account, account, 0, True, since_s, False)
