"""Writes what is generated in the chart: `python -m deploy.helm.generate`, from the project's folder.

The rules of Prometheus are those of deploy/prometheus. The schema, by which Helm refuses a value that is misspelt, is
made from values.yaml, whose defaults say what is there and of which type, and from the router's settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes import generate as manifests
from router.app.settings.model import Settings
from router.app.settings.text import is_secret

Schema = dict[str, Any]

CHART = Path(__file__).parent / "warmroute"
RULES = CHART / "files" / "prometheus-rules.yaml"
SCHEMA = CHART / "values.schema.json"

WITHHELD = {
    # The templates say these themselves: ports and probes follow from them.
    *("host", "port", "admin_host", "admin_port", "workers"),
    *("ssl_certfile", "ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"),
    "api_keys_file",  # clientKeys
    "state_file",  # the root is read-only, and what routers know is in Redis
}
"""Settings that are no values. Secrets are not, either: a release keeps its values for whoever can read it."""

OTHER_TYPES: dict[str, Schema] = {
    "image.pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
    "redis.image.pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "topologySpread.whenUnsatisfiable": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
    "topologySpread.keys": {"type": "array", "items": {"type": "string"}},
    "engines.port": {"type": ["integer", "string"], "description": "By number, or by its name in the pods."},
    "autoscaling.averageCpu": {"type": ["number", "string"]},
    "affinity": {"type": "object"},
    "resources": {"type": "object"},
    "redis.resources": {"type": "object"},
}
"""Value -> what its default does not say of it."""


def schema() -> Schema:
    """Return the schema of values.yaml."""
    whole = _of(yaml.safe_load((CHART / "values.yaml").read_text()), "")
    # A chart that has this one among its parts hands it these.
    whole["properties"]["global"] = {"type": "object"}
    whole["properties"]["settings"] = _settings()
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | whole


def _of(default: Any, path: str) -> Schema:
    if path in OTHER_TYPES:
        return OTHER_TYPES[path]
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 1}
        case str():
            return {"type": "string"}
        case []:
            return {"type": "array", "items": {"type": "object"}}
        case dict() if default:
            inner = {name: _of(value, f"{path}.{name}".lstrip(".")) for name, value in default.items()}
            return {"type": "object", "additionalProperties": False, "properties": inner}
        case {}:
            return {"type": "object", "additionalProperties": {"type": "string"}}
    raise TypeError(f"{path}: {default!r}")


def _settings() -> Schema:
    """The router's own. Of redis only a URL without a password: one with belongs into the Secret."""
    known = Settings.model_json_schema()["properties"]
    open_to_all = {name for name, field in Settings.model_fields.items() if not is_secret(field)} - WITHHELD
    properties = {name: _plain(known[name]) for name in known if name in open_to_all}
    properties["redis"] = {"description": known["redis"]["description"], "type": "string", "pattern": "^[^@]*$"}
    return {
        "type": "object",
        "additionalProperties": False,
        # How long a pod may take to end is made of these.
        "required": ["drain_s", "grace_s"],
        "properties": properties,
    }


def _plain(said: Schema) -> Schema:
    """Without defaults and titles, which are pydantic's, and without null: what is not set is left out."""
    kept = {key: value for key, value in said.items() if key not in ("default", "title", "ge", "le")}
    either = [each for each in kept.pop("anyOf", ()) if each != {"type": "null"}]
    return kept | (either[0] if len(either) == 1 else {"anyOf": either} if either else {})


def texts() -> dict[Path, str]:
    """Return each generated file with its text."""
    rule = yaml.safe_load(manifests.text())["spec"]
    return {
        RULES: manifests.HEADING + yaml.safe_dump(rule, sort_keys=False, allow_unicode=True, width=120),
        SCHEMA: json.dumps(schema(), indent=2) + "\n",
    }


def main() -> None:
    """Write them."""
    for file, text in texts().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
