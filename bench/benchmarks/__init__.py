"""One file for each benchmark of the performance page: `run` does it and gives its figures."""

from bench.benchmarks import p1, p2, p2b, p3, p4, p5, p6, p7, p8, p9, p10, p11, p13

BENCHMARKS = {
    "P1": p1.run,
    "P2": p2.run,
    "P2b": p2b.run,
    "P3": p3.run,
    "P4": p4.run,
    "P5": p5.run,
    "P6": p6.run,
    "P7": p7.run,
    "P8": p8.run,
    "P9": p9.run,
    "P10": p10.run,
    "P11": p11.run,
    "P13": p13.run,
}
"""By their names."""
