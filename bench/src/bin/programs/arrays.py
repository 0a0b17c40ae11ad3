import sys

import numpy as np

total = 0.0
for i in range(int(sys.argv[1])):
    rows = [np.ones(1000 + j) * j for j in range(2000)]
    total += sum(float(row.sum()) for row in rows)
    square = np.outer(rows[0][:400], rows[1][:400])
    total += float((square @ square).trace()) + float(np.sort(rows[-1])[0])
print(total)
