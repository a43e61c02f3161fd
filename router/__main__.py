"""`python -m router` is `warmroute`."""

from router.app.cli import main

main()
