"""Stop on signals."""

import atexit
import signal
import weakref
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 0.5  # after which a stop that was lost is raised again


class Stopped(BaseException):
    """A signal asked this process to stop.

    Attributes:
        status: the exit status that a shell reports after this signal: 128 plus the signal's
        number.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def stop_on_signals() -> None:
    """Raise Stopped on Ctrl-C, on SIGTERM, and when the terminal closes; ignored signals (nohup)
    stay ignored.

    Only the first signal counts: the terminal and the parent process may send one each, and the
    second must not interrupt the writing of a row. Python drops an exception that it cannot pass
    on, as in `__del__` or the callback of a weak reference: a timer raises it again.
    """

    def stop(number: int, _frame) -> None:
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        _raise(number)

    def _raise(number: int) -> NoReturn:
        stopped = Stopped(number)
        on_its_way = weakref.ref(stopped)
        signal.signal(signal.SIGALRM, lambda *_: on_its_way() or _raise(number))
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        try:
            raise stopped
        finally:
            del stopped  # else this frame, which its traceback has, would keep it

    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
