#!/bin/sh
# make test-lowest: the tests with the lowest versions of all packages that pyproject.toml asks for, in .lowest-venv.
# Test tools and what packages ask for themselves are as new as can be.
set -eu
cd "$(dirname "$0")/../.."
uv=.venv/bin/uv
lowest=build/lowest.txt
mkdir -p build
$uv pip compile --quiet --no-header --no-annotate --resolution lowest-direct --output-file "$lowest" \
	--extra kv-events --extra otel --extra tokenizer pyproject.toml
$uv venv --quiet --clear --python .venv/bin/python .lowest-venv
VIRTUAL_ENV=.lowest-venv $uv pip install --quiet --constraint "$lowest" --editable '.[dev]'
sed -n '/==/p' "$lowest" | tr '\n' ' '
echo
exec .lowest-venv/bin/python -m pytest -p no:cacheprovider "$@"
