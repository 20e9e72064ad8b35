"""Runs a program, and ends it and everything in its process group when the standard input ends.

A tree's own compiler knows nothing of us. The command that started this holds the other end of the standard input: it closes with that
command, however it ended. The program has its arguments, directory, environment and group as if it had been started directly, and this
ends exactly as the program does. It leads the group, so whoever ends the group ends both.
"""

import os
import resource
import signal
import sys
import threading


def end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    # A request to end goes to the whole group; the program answers it, and this waits for the answer. Handlers, unlike ignored
    # signals, are not handed on to the program.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    # What Python ignores for itself is not ignored for the program.
    restored = {number for name in ("SIGPIPE", "SIGXFSZ") if (number := getattr(signal, name, None))}
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    program = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[nothing], setsigdef=restored)
    threading.Thread(target=end_with_input, daemon=True).start()
    _, status = os.waitpid(program, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


main()
