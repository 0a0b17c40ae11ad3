# Allocates known numbers of blocks of known sizes. Frees every second block.
# Arguments: the numbers of medium and large blocks.
import sys


def allocate(count, size):
    # A list of this length is larger than all classes, whatever the number is.
    kept = [None] * 30000
    for index in range(count):
        # An object of bytes takes 33 bytes more.
        kept[index] = bytes(size - 33)
    for index in range(0, count, 2):
        kept[index] = None
    return kept


medium = allocate(int(sys.argv[1]), 824)
large = allocate(int(sys.argv[2]), 20000)
# Not freed by the interpreter's end, which frees modules.
import os

os._exit(0)
