# bash completion for triage and triaged. The programs themselves say what a word may become, from the
# tables that --help prints; triage asks the server for names of queues, and waits no longer than 0.4 s.

_triage() {
    local program=${COMP_WORDS[0]} rest=${COMP_LINE-} word value i
    local -a words=()

    # bash takes http://host apart at its colons: words with no blank between them are one.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -gt 0 && -n $word && -n $rest && $rest != [[:space:]]* ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done

    local count=${#words[@]}
    COMPREPLY=()
    while IFS=$'\t' read -r value _; do
        if [[ $value == :files ]]; then
            compopt -o default 2>/dev/null
        else
            COMPREPLY+=("$value")
        fi
    done < <("${program/#\~/$HOME}" --complete="${words[count - 1]}" "${words[@]:1:count - 2}" 2>/dev/null)
}

complete -F _triage triage triaged
