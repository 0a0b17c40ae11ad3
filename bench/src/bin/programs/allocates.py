import sys


class Node:
    def __init__(self, key): self.key, self.children = key, {}


total = 0
for i in range(int(sys.argv[1])):
    nodes = [Node(str(j) * 8) for j in range(20000)]
    for node in nodes: node.children[node.key] = [node.key.upper(), bytearray(len(node.key) * 40)]
    total += sum(len(node.children) for node in nodes)
print(total)
