"""Stop on signals."""

import signal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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

    Only the first signal counts. The terminal and the parent process may send one each, and the
    second must not interrupt the writing of a row.
    """

    def stop(number: int, _frame) -> None:
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
