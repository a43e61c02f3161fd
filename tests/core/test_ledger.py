from router.core.ledger import Entry, Ledger, Work


def streamed(tokens: int, now: float = 0.0) -> Entry:
    return Entry(Work(tokens), tokens / 100, True, now, now + 1)


def in_one_piece(tokens: int, end_s: float) -> Entry:
    return Entry(Work(tokens), tokens / 100, False, 0.0, end_s)


def test_tokens_count_from_dispatch_to_the_first_byte_and_a_stream_to_its_last() -> None:
    ledger, entry = Ledger(), streamed(300)
    ledger.open(entry)
    assert (ledger.uncached_tokens, ledger.streams) == (300, 1)
    ledger.prefilled(entry)
    ledger.prefilled(entry)
    assert (ledger.uncached_tokens, ledger.streams) == (0, 1)
    ledger.close(entry)
    assert (ledger.uncached_tokens, ledger.streams, len(ledger.pending)) == (0, 0, 0)


def test_a_request_that_ends_before_its_first_byte_takes_its_tokens_along() -> None:
    ledger, entry = Ledger(), streamed(300)
    ledger.open(entry)
    ledger.close(entry)
    assert (ledger.uncached_tokens, ledger.streams) == (0, 0)


def test_a_later_first_byte_tells_that_an_answer_in_one_piece_is_past_its_prefill() -> None:
    ledger = Ledger()
    piece, early, late = in_one_piece(100, 99.0), streamed(200), streamed(400)
    for entry in (piece, early, late):
        ledger.open(entry)
    ledger.prefilled(late)
    assert ledger.uncached_tokens == 200  # the other stream will tell of itself
    assert ledger.streams == 3


def test_an_answer_in_one_piece_counts_as_prefilled_once_its_time_has_passed() -> None:
    ledger, entry = Ledger(), in_one_piece(100, 5.0)
    ledger.open(entry)
    ledger.expire(4.9)
    assert ledger.uncached_tokens == 100
    ledger.expire(5.0)
    assert (ledger.uncached_tokens, ledger.streams) == (0, 1)
    ledger.close(entry)
    assert (ledger.uncached_tokens, ledger.streams) == (0, 0)
