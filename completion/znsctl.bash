# SPDX-License-Identifier: MIT
# Completion for znsctl and criu-zns: commands, options, checkpoints and containers are asked of the programs themselves.
_zns_names()	# members of the JSON that znsctl prints for $2..., as words
{
	local member=$1
	shift
	znsctl "$@" --json 2>/dev/null | grep -oE "\"($member)\": *\"[A-Za-z0-9_./-]+\"" | sed 's/.*"\([^"]*\)"$/\1/' | sort -u
}

_zns_commands()
{
	znsctl "$@" --help 2>/dev/null | sed -n 's/^  \([a-z]\{2,\}\) .*/\1/p' | sort -u
}

_zns_devices()
{
	ls "${ZNS_CONFIG:-/etc/zns-criu}/devices.d" 2>/dev/null
}

_zns_arguments()	# what may stand where the usage of command $1 says ID, CONTAINER or DEV2
{
	local usage=$(znsctl "$1" --help 2>/dev/null | head -n 1)

	case $usage in
	*[\ \[]ID*CONTAINER*) _zns_names 'id|container' ls ;;
	*[\ \[]ID*) _zns_names id ls ;;
	*[\ \[]CONTAINER*) _zns_names container ls ;;
	*\ DEV2*) _zns_devices ;;
	esac
}

_zns_options()
{
	"$@" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u
}

_znsctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=()

	if [ "$COMP_CWORD" = 1 ]; then
		words=($(_zns_commands) help)
	elif [ "$COMP_CWORD" = 2 ] && [[ $command = help ]]; then
		words=($(_zns_commands))
	elif [ "$COMP_CWORD" = 2 ] && [[ $command = @(docker|memory|key) ]]; then
		words=($(_zns_commands "$command"))
	elif [[ $cur == -* ]]; then
		if [ "$command" = docker ]; then
			words=($(_zns_options znsctl docker "${COMP_WORDS[2]}"))
		else
			words=($(_zns_options znsctl "$command"))
		fi
	else
		case $prev in
		--container) words=($(_zns_names container ls)) ;;
		--of) words=($(_zns_names 'id|container' ls)) ;;
		--dev) words=($(_zns_devices)) ;;
		*)
			if [ "$command" = memory ]; then
				words=($(_zns_names name memory status))
			elif [ "$command" = docker ]; then
				# a name of another daemon's could be a command to the shell
				words=($(docker ps -a --format '{{.Names}}' 2>/dev/null | grep -xE '[A-Za-z0-9][A-Za-z0-9_.-]*'))
			else
				words=($(_zns_arguments "$command"))
			fi
			if [ "$COMP_CWORD" = 2 ]; then
				words+=($(_zns_devices))
			fi
			;;
		esac
		COMPREPLY=($(compgen -W "${words[*]}" -- "$cur") $(compgen -f -- "$cur"))
		return
	fi
	COMPREPLY=($(compgen -W "${words[*]}" -- "$cur"))
}

_criu_zns()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=()

	if [ "$COMP_CWORD" = 1 ]; then
		words=(dump pre-dump restore check page-server service dedup lazy-pages cpuinfo)
	elif [[ $cur == -* ]]; then
		words=($(_zns_options criu-zns))
	else
		case $prev in
		--zns-checkpoint | --zns-parent) words=($(_zns_names id ls)) ;;
		--zns-container) words=($(_zns_names container ls)) ;;
		--zns-dev) words=($(_zns_devices)) ;;
		-t | --tree) words=($(ps -eo pid= 2>/dev/null)) ;;
		esac
		COMPREPLY=($(compgen -W "${words[*]}" -- "$cur") $(compgen -f -- "$cur"))
		return
	fi
	COMPREPLY=($(compgen -W "${words[*]}" -- "$cur"))
}
complete -o filenames -F _znsctl znsctl
complete -o filenames -F _criu_zns criu-zns
