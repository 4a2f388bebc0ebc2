# A server in Python that waits for a slow service. Arguments: seconds, mode, count. By mode, so many processes with one thread each
# (processes), as those of gunicorn, or threads of one process (threads) have sent a request to the process `slow_service` and wait for a
# response that does not come. With the mode consumers, they are threads that wait for a message of a queue, and the server has a single
# client, which examines it. It says "ready PID" when all of them have, and ends after argv[1] seconds, or when the pipe on its
# standard input is closed.
import ctypes
import os
import signal
import socket
import sys
import threading


# PR_SET_PDEATHSIG of linux/prctl.h.
def fork():
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    return child


def answer_nothing(listener, count):
    with open("/proc/self/comm", "w") as comm:
        comm.write("slow_service")
    connections = [listener.accept()[0] for _ in range(count)]
    for connection in connections:
        connection.recv(1000)
    os.write(started, b"x")
    while connections:
        signal.pause()


def ask(address):
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        connection.recv(1000)


mode, count = sys.argv[2], int(sys.argv[3])
all_started, started = os.pipe()
slow = socket.create_server(("127.0.0.1", 0))
if fork() == 0:
    answer_nothing(slow, count)
address = slow.getsockname()
slow.close()
listener = socket.create_server(("127.0.0.1", 0))
clients = []
for _ in range(count):
    # The client of the request.
    if mode != "consumers" or not clients:
        clients += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
    if mode != "processes":
        threading.Thread(target=ask, args=[address], daemon=True).start()
    elif fork() == 0:
        ask(address)
        os._exit(0)
os.read(all_started, 1)
signal.alarm(int(sys.argv[1]))
print("ready", os.getpid(), flush=True)
while sys.stdin.buffer.read1(4096):
    pass
os._exit(0)
