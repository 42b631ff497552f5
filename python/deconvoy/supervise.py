"""A child process that stands for this one: signals go to it, its end becomes ours."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

from deconvoy.program import Program, why_not_started

# What others may send to this process and mean for the program. Of SIGRTMIN and beyond, all.
FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGIO,
    signal.SIGPROF,
    signal.SIGVTALRM,
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
}

# Of `si_code`: the kernel sent it. Those of a terminal go to its whole foreground group, and so
# to the program without our help. (sudo decides by the same.)
SI_KERNEL = 0x80


def run(program: Program, environment: Mapping[str, str]) -> int:
    """Run a program in this process group, and return its status as `subprocess` does.

    Signals that a process sends to this one are sent on; they are blocked here meanwhile, so that
    none is lost before the child is there.

    Raises:
        UserError: the kernel refuses to execute it.
    """
    forwarded = {s for s in FORWARDED if signal.getsignal(s) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, forwarded | {signal.SIGCHLD})

    # Ignored, as it may be inherited, it would make the kernel forget the child's status.
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def unblock() -> None:
        signal.signal(signal.SIGCHLD, on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        # Descriptors that a shell has opened for the program are its own: `<(command)`.
        child = subprocess.Popen(
            program.argv,
            executable=program.path,
            env=environment,
            close_fds=False,
            preexec_fn=unblock,
        )
    except OSError as error:
        unblock()
        raise why_not_started(error, program) from None
    while child.poll() is None:
        # SIGCHLD is blocked and pending if the child ended since the poll.
        received = signal.sigwaitinfo(forwarded | {signal.SIGCHLD})
        if received.si_signo != signal.SIGCHLD and received.si_code != SI_KERNEL:
            child.send_signal(received.si_signo)
    while signal.sigtimedwait(forwarded, 0) is not None:
        pass
    unblock()
    return child.returncode


def end_as(status: int) -> NoReturn:
    """End with the status of a child: its exit status, or by the signal that ended it."""
    if status < 0:
        # A core file would take the place of the program's own.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    sys.exit(status if status >= 0 else 128 - status)
