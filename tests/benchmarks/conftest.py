"""The benchmarks are run from a checkout and are not installed; these tests find them there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent))
