"""What do these tests share? A GPU that only exists in numbers (`simulated_gpu`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
