"""Takes other settings over while requests run: those that can be, all together or none."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from router.app.house import House
from router.app.process import certificate
from router.app.process.reloads import Report
from router.app.roster.following import follow
from router.app.settings.files import Watched
from router.app.settings.model import Settings
from router.app.settings.sources import ConfigError, Effective
from router.app.settings.text import about
from router.app.wiring import configure

LOGGER = logging.getLogger("warmroute.reload")

LOOK_S = 1.0
"""Between two looks at the files. A change is taken when it has been there for one: Kubernetes itself takes a minute to
bring one to a pod."""

LIVE = frozenset(name for name, field in Settings.model_fields.items() if about(field).live)
"""Settings that a reload changes."""


async def reload(house: House) -> Report:
    """Read the settings again and take them over, in all workers. What has become of it is logged and counted."""
    return await house.reloads.ask()


def compare(present: Settings, new: Settings) -> tuple[Settings, Report]:
    """Return the settings that are in force when `new` are taken over, and what that changes."""
    different = [name for name in Settings.model_fields if getattr(present, name) != getattr(new, name)]
    changed = tuple(name for name in different if name in LIVE)
    report = Report(changed, tuple(name for name in different if name not in LIVE))
    return present.model_copy(update={name: getattr(new, name) for name in changed}), report


def take(house: House, new: Settings) -> Report:
    """Take over what a reload may change, and read again the files that settings name; all of it or, in error, none."""
    settings, report = compare(house.settings, new)
    try:
        certificate.check(settings)
        configure(house, settings)
    except (ValueError, OSError) as error:
        return Report(error=str(error))
    _configure_process(house, settings)
    if "replica" in report.changed:
        follow(house)
    return report


def _configure_process(house: House, settings: Settings) -> None:
    """Put into force what belongs to the process rather than to the house."""
    set_log_level(settings)
    serving = house.reloads.serving
    if serving is not None:
        serving.timeout_keep_alive = settings.keepalive_s
        if serving.ssl is not None:
            certificate.load(serving.ssl, settings)


def set_log_level(settings: Settings) -> None:
    """Write lines from this level on."""
    logging.getLogger().setLevel(settings.log_level.upper())


def log(report: Report, why: str) -> None:
    """Say in one line what has come of a reload, and in one more what can't."""
    if report.error is not None:
        LOGGER.warning("reload (%s): all settings stay as they are: %s", why, report.error)
        return
    LOGGER.info("reload (%s): %s", why, ", ".join(report.changed) or "no setting has changed")
    if report.needs_restart:
        LOGGER.warning("reload (%s): a change needs a restart: %s", why, ", ".join(report.needs_restart))


async def reload_alone(effective: Effective, house: House) -> None:
    """Reload the one process that there is whenever that is asked for, until cancelled."""
    files = Files(effective)

    def again(why: str) -> Report:
        try:
            report = take(house, files.read())
        except ConfigError as error:
            report = Report(error=str(error))
        house.reloads.note(report)
        log(report, why)
        return report

    async def ask() -> Report:
        return again("admin API")

    house.reloads.ask = ask
    await listen(files, lambda: house.settings, again)


class Files:
    """The files that settings come from, and those that they name: read again, and watched for changes."""

    def __init__(self, effective: Effective) -> None:
        self._effective = effective
        known = {} if effective.config is None else {effective.config: effective.mark}
        self._watched = Watched(known)

    def read(self) -> Settings:
        """Read the settings of now. Raises ConfigError."""
        self._watched.read()
        return self._effective.again().settings

    def changed(self, settings: Settings) -> bool:
        """Look; return whether a file has changed since it was read, and come to rest. `settings` name some of them."""
        config = self._effective.config
        return self._watched.changed([*([] if config is None else [config]), *certificate.files(settings)])


async def listen(files: Files, present: Callable[[], Settings], again: Callable[[str], object]) -> None:
    """Call `again` with the reason on SIGHUP and when a file has changed, until cancelled."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again, "SIGHUP")
    while True:
        if files.changed(present()):
            again("file change")
        await asyncio.sleep(LOOK_S)
