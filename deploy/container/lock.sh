#!/bin/sh
# make lock: the exact packages of the image, and of its build, with their hashes. Versions stay as they are; --upgrade
# takes the newest, --upgrade-package NAME of one package.
set -eu
cd "$(dirname "$0")/../.."
bin=.venv/bin
here=deploy/container

compile() {
	output=$1
	shift
	$bin/uv pip compile --quiet --universal --python-version 3.13 --generate-hashes --no-emit-index-url \
		--custom-compile-command 'make lock' --only-binary :all: --output-file "$here/$output" "$@"
}

compile requirements.lock pyproject.toml --extra kv-events --extra otel --extra tokenizer "$@"
$bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
	compile build.lock - "$@"

# The image installs wheels only: a release that has none for a platform is found here, and not by a user who builds there.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28; do
	for lock in requirements build; do
		$bin/uv pip install --quiet --dry-run --target "$scratch" --python-version 3.13 --python-platform "$platform" \
			--only-binary :all: --require-hashes --requirement "$here/$lock.lock"
	done
	echo "make lock: every wheel exists for $platform"
done
