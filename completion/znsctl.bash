# SPDX-License-Identifier: MIT
# Completion for znsctl: commands and options are asked of the program itself.
_znsctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=()

	if [ "$COMP_CWORD" = 1 ]; then
		words=($(znsctl --help 2>/dev/null | sed -n 's/^  \([a-z]\{2,\}\)  .*/\1/p') help)
	elif [ "${COMP_WORDS[1]}" = help ]; then
		words=($(znsctl --help 2>/dev/null | sed -n 's/^  \([a-z]\{2,\}\)  .*/\1/p'))
	elif [ "${COMP_WORDS[1]}" = docker ] && [ "$COMP_CWORD" = 2 ]; then
		words=($(znsctl docker --help 2>/dev/null | sed -n 's/^  \([a-z]\{2,\}\)  .*/\1/p'))
	elif [[ $cur == -* ]]; then
		if [ "${COMP_WORDS[1]}" = docker ]; then
			words=($(znsctl docker "${COMP_WORDS[2]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u))
		else
			words=($(znsctl "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u))
		fi
	else
		case $prev in
		--dev | ls | resize | status | top | report | zones | groups | gc | fsck | probe | selftest | verify | unregister | register)
			words=($(ls /etc/zns-criu/devices.d 2>/dev/null)) ;;
		esac
		COMPREPLY=($(compgen -W "${words[*]}" -- "$cur") $(compgen -f -- "$cur"))
		return
	fi
	COMPREPLY=($(compgen -W "${words[*]}" -- "$cur"))
}
complete -o filenames -F _znsctl znsctl
