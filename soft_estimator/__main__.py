"""`python -m soft_estimator` is the `soft-estimator` command."""

import sys

from soft_estimator.cli import main

sys.exit(main())
