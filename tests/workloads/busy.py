# The Python workload: run > dive > ... > dive > work, each call by way of the interpreter's C functions. It says
# "ready PID" and ends after argv[1] seconds (60 without it), or when the pipe on its standard input is closed.
import json
import os
import sys
import threading
import time


def work():
    text = json.dumps({str(number): [number] * 10 for number in range(200)})
    return len(sorted(json.loads(text), key=lambda name: name[::-1]))


def dive(calls_left):
    if calls_left == 0:
        return work()
    return max([calls_left], key=lambda _: dive(calls_left - 1))


def run(ends_at):
    while time.monotonic() < ends_at:
        dive(20)


def await_end_of_input():
    while sys.stdin.read(4096):
        pass
    os._exit(0)


ends_at = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 60)
threading.Thread(target=await_end_of_input, daemon=True).start()
print("ready", os.getpid(), flush=True)
run(ends_at)
