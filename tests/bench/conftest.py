"""The benchmarks are run from the project's folder and not installed: their tests import them from there."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
