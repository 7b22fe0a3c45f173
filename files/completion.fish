# Completion in fish, by argcomplete, of `python grid_run.py` and `python main.py`: source files/completion.fish

function __nuq_is_script
    set -l words (commandline -opc)
    test (count $words) -ge 2
    and string match -qr '(^|/)(grid_run|main)\.py$' -- $words[2]
    and test -f $words[2]
end

function __nuq_complete
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp)
    set -lx COMP_POINT (string length -- $COMP_LINE)
    set -lx _ARGCOMPLETE 2 # words before the first argument
    set -lx _ARGCOMPLETE_DFS \t
    set -lx _ARGCOMPLETE_IFS \n
    set -lx _ARGCOMPLETE_SHELL fish
    set -lx _ARGCOMPLETE_SUPPRESS_SPACE 1
    $words[1] $words[2] 8>&1 9>/dev/null 1>/dev/null 2>/dev/null # the answer comes on 8
end

complete --command python --condition __nuq_is_script --no-files --arguments '(__nuq_complete)'
