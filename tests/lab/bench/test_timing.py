import pytest
from td3_lab.bench.timing import Case, interleave, ratio, spread, summary, table


class World:
    """A clock that moves only while somebody works, and a diary of who worked."""

    def __init__(self):
        self.now, self.diary = 0.0, []

    def clock(self) -> float:
        return self.now

    def case(self, name: str, cost: float, first_cost: float = 0.0, wait: float = 0.0, units: float = 1.0) -> Case:
        def prepare():
            self.diary.append(name)
            self.now += first_cost

        def work():
            self.now += cost
            return units

        def finish():
            self.now += wait

        return Case(work, prepare, finish)


def test_every_case_gets_its_own_rate():
    world = World()
    cases = {"fast": world.case("fast", 0.01), "slow": world.case("slow", 0.04, units=2.0)}
    rates = interleave(cases, 5.0, 0.2, world.clock)
    assert rates["fast"] == pytest.approx([100.0] * len(rates["fast"]))
    assert rates["slow"] == pytest.approx([50.0] * len(rates["slow"]))


def test_cases_take_turns_and_each_round_starts_with_another():
    world = World()
    interleave({name: world.case(name, 0.125) for name in "abc"}, 4.5, 0.25, world.clock)
    assert "".join(world.diary) == "abcbcacababc"


def test_getting_ready_and_the_first_call_are_not_counted():
    world = World()
    rates = interleave({"a": world.case("a", 0.01, first_cost=3.0)}, 1.0, 0.1, world.clock)
    assert rates["a"] == pytest.approx([100.0])


def test_waiting_for_the_device_is_counted():
    world = World()
    rates = interleave({"a": world.case("a", 0.1, wait=1.0)}, 0.1, 1.0, world.clock)
    assert rates["a"][0] == pytest.approx(10 / 2.0, rel=0.1)


def test_a_round_is_never_begun_that_would_not_fit():
    world = World()
    cases = {name: world.case(name, 0.1) for name in "ab"}
    rates = interleave(cases, 10.0, 0.1, world.clock)
    assert world.now <= 10.0
    assert len(rates["a"]) == len(rates["b"]) > 10


def test_there_is_at_least_one_round():
    world = World()
    assert len(interleave({"a": world.case("a", 5.0)}, 0.1, 0.1, world.clock)["a"]) == 1


def test_a_ratio_pairs_what_ran_in_the_same_round():
    """In its second round the machine was ten times slower: the ratio does not see it."""
    assert ratio([200.0, 20.0, 210.0], [100.0, 10.0, 100.0]) == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.05})


def test_the_summary_is_median_and_quartiles():
    assert summary([5.0, 1.0, 2.0, 3.0, 4.0]) == {"median": 3.0, "low": 2.0, "high": 4.0}


def test_a_table_is_markdown_with_straight_columns():
    assert table(["name", "rate"], [["a", "1,000"], ["longer", "2"]]).splitlines() == [
        "| name   |  rate |",
        "| ------ | ----: |",
        "| a      | 1,000 |",
        "| longer |     2 |",
    ]


def test_a_spread_in_words():
    assert spread({"median": 1234.4, "low": 1200.0, "high": 1300.6}) == "1,234 (1,200-1,301)"
    assert spread({"median": 2.345, "low": 2.0, "high": 3.0}, 2) == "2.35 (2.00-3.00)"
