"""`python -m router` is `warmroute`."""

from router.app.entry import main

main()
