# Six threads of Python. By argv[2]: they compute (computes), or compute for a millisecond in fifty (naps). It says "ready PID" and ends
# after argv[1] seconds, or when the pipe on its standard input is closed.
import os
import sys
import threading
import time


def compute(until):
    number = 0
    while time.monotonic() < until:
        number = (number * 1103515245 + 12345) % 2147483648


def run(pause):
    while True:
        compute(time.monotonic() + 0.001)
        if pause:
            time.sleep(pause)


def end_after(seconds):
    time.sleep(seconds)
    os._exit(0)


pause = 0.05 if sys.argv[2] == "naps" else 0
for _ in range(6):
    threading.Thread(target=run, args=[pause], daemon=True).start()
threading.Thread(target=end_after, args=[float(sys.argv[1])], daemon=True).start()
print("ready", os.getpid(), flush=True)
while sys.stdin.read(4096):
    pass
os._exit(0)
