# Threads with known functions, for the tests of `plimsoll attach`.
import sys
import threading
import time


class Server:
    def wait(self, event):
        event.wait()


def count():
    number = 0
    while True:
        number += 1


# Calls all the time: its frames change while they are read.
def call():
    while True:
        first()


def first():
    second(1)


def second(number):
    return third(number) + third(number)


def third(number):
    return number + 1


def sleep():
    time.sleep(1000)


def with_native_between():
    # sorted() calls the function.
    sorted([1], key=lambda number: time.sleep(1000))


def start(target, *arguments):
    threading.Thread(target=target, args=arguments, daemon=True).start()


def outer():
    inner()


def inner():
    print("ready", flush=True)
    sys.stdin.read()


event = threading.Event()
start(Server().wait, event)
for target in sys.argv[1:]:
    start(globals()[target])
outer()
