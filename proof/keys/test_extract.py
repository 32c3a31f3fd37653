"""Claims about extraction: how many keys a turn takes."""

from streamdedup.keys.extract import Extractor
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.parts import Part
from tests.keys.test_parts import DEBEZIUM
from tests.rows import table


@table(
    [
        (Extractor("key"), 300_000),
        (Extractor("value"), 300_000),
        (Extractor("key", normalizer=normalizer("trim")), 300_000),
        (Extractor("json", ("id",)), 10_000),
        (Extractor("json", ("id",), normalizer=normalizer("trim")), 10_000),
        (Extractor("header", ("h",)), 1_250),
        (Extractor("header", ("h",), normalizer=normalizer("trim")), 1_250),
        (Extractor("json", ("id", "tenant")), 5_000),
        (Extractor("json", ("items.0",)), 10_000),
        (Extractor.of_parts(DEBEZIUM), 1_000),
        (Extractor.of_parts(DEBEZIUM[1:]), 5_000),
        (Extractor.of_parts((DEBEZIUM[0], Part("header", ("b",)))), 625),
    ]
)
def test_a_turn_of_the_loop_takes_fewer_keys_where_each_may_take_longer(
    extractor: Extractor, rows_max: int
) -> None:
    """Up to 1 us for a reason, 8 us for headers: 10 ms at most. A normalizer reads keys in turns of its own."""
    assert rows_max / 4 < extractor.rows_a_turn <= rows_max
