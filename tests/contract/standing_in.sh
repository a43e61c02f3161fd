#!/bin/bash
# Stands on a reader's PATH as `warmroute` and `prometheus`. What doesn't end by itself (a router, simulated engines, a
# Prometheus) is started, seen ready and left running, so that a page's next command can use it; one of the same kind
# that runs already is ended first, by SIGTERM, and must exit with 0. Everything else is run as it is.
#   $RUNNING  a folder: KIND.pid, KIND.log, KIND.code of what runs
#   $PROGRAMS where the programs are
set -u
name=$(basename "$0")
real=$PROGRAMS/$name

stop() {
	[ -e "$RUNNING/$1.pid" ] || return 0
	kill -TERM "$(cat "$RUNNING/$1.pid")" 2>/dev/null
	until [ -s "$RUNNING/$1.code" ]; do sleep 0.02; done
	code=$(cat "$RUNNING/$1.code")
	rm "$RUNNING/$1.pid" "$RUNNING/$1.code"
	[ "$code" = 0 ] || { echo "$1 ended with $code:" >&2; cat "$RUNNING/$1.log" >&2; return 1; }
}

value() { # value DEFAULT FLAG ARGUMENTS...: what a flag was given, as --flag X or --flag=X
	found=$1 flag=$2
	shift 2
	while [ $# -gt 0 ]; do
		case $1 in "$flag") found=${2-} ;; "$flag"=*) found=${1#*=} ;; esac
		shift
	done
	echo "$found"
}

case "$name ${1-}" in
"standing-in stop") for file in "$RUNNING"/*.pid; do stop "$(basename "$file" .pid)" || exit 1; done; exit 0 ;;
"warmroute serve") kind=router ready=http://127.0.0.1:$(value 8080 --port "$@")/readyz ;;
"warmroute sim") kind=engines ready=http://127.0.0.1:$(value 8000 --port "$@")/health ;;
"prometheus "*)
	kind=prometheus ready=http://$(value 127.0.0.1:9090 --web.listen-address "$@")/-/ready
	set -- "$@" --storage.tsdb.path="$RUNNING/prometheus"
	;;
*) exec "$real" "$@" ;;
esac

stop "$kind" || exit 1
(
	# uvloop leaves ends of the caller's pipes open in its children; as long as one is, the caller waits.
	for open in /proc/self/fd/*; do
		[ "${open##*/}" -le 2 ] || eval "exec ${open##*/}>&-"
	done
	sh -c 'echo $$ >"$0.pid"; exec "$@"' "$RUNNING/$kind" "$real" "$@"
	echo $? >"$RUNNING/$kind.code"
) >"$RUNNING/$kind.log" 2>&1 </dev/null &
address=${ready#http://} address=${address%%/*}
# A look at the port costs less than a curl, and there are many until an interpreter is up on a busy machine.
until (: >"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null && curl -sf -o "$RUNNING/$kind.ready" "$ready"; do
	[ ! -s "$RUNNING/$kind.code" ] || { echo "$kind ended:" >&2; cat "$RUNNING/$kind.log" >&2; exit 1; }
	sleep 0.1
done
