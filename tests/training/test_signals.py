"""Whom signals reach beside a training."""

import signal

from bures.training._signals import SignalListener


def test_a_handler_set_from_c_stays(monkeypatch):
    """Python cannot name the handler of a program that embeds it, so it could not put it back."""
    set_here = []
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGTERM else signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", lambda number, handler: set_here.append((number, handler)) or "earlier")
    with SignalListener() as listener:
        assert set_here == [(signal.SIGINT, listener._hear)]
    assert set_here[1:] == [(signal.SIGINT, "earlier")]
