"""`python -m td3` is `td3`."""

import sys

from td3.cli import main

sys.exit(main())
