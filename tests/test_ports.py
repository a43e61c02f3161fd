"""Whose fault a connection's failure is, however deep the system's error lies."""

from __future__ import annotations

import errno

import pytest

from router.ports import OWN_FAULTS, own_fault


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("number", sorted(OWN_FAULTS))
def test_the_systems_word_is_found_at_the_end_of_the_chain(number: int) -> None:
    word = OSError(number, "none left")
    assert own_fault(word) is word
    assert own_fault(caused(RuntimeError(), caused(ValueError(), word))) is word
    assert own_fault(caused(RuntimeError(), ExceptionGroup("addresses", [word, OSError()]))) is word


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNRESET])
def test_the_other_sides_faults_are_none_of_ours(number: int) -> None:
    assert own_fault(caused(RuntimeError(), OSError(number, "no"))) is None
    assert own_fault(TimeoutError()) is None
    assert own_fault(None) is None
