"""`python -m zerocopy_data.cli`: the same as `zcd`."""

from . import main

main()
