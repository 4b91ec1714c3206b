#include <memory>
#include <ostream>

#include "client/cli/completion.h"

namespace lockstep::cli {
namespace {

constexpr char kBash[] = R"(# bash completion for lockstep
_lockstep() {
  local cur="${COMP_WORDS[COMP_CWORD]}" line
  [ "$cur" = "=" ] && cur=""
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :files)
        compopt -o filenames 2>/dev/null || true
        mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
      :dirs)
        compopt -o filenames 2>/dev/null || true
        mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
      *)
        COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete \
           "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _lockstep lockstep
)";

constexpr char kZsh[] = R"(#compdef lockstep
# zsh completion for lockstep
_lockstep() {
  local -a entries
  local line
  while IFS= read -r line; do
    case "$line" in
      :files) _files; return ;;
      :dirs) _files -/; return ;;
      *) entries+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done < <(lockstep __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#entries} )) && _describe -t lockstep lockstep entries
}
if [ "${funcstack[1]}" = "_lockstep" ]; then
  _lockstep "$@"
else
  compdef _lockstep lockstep
fi
)";

constexpr char kFish[] = R"(# fish completion for lockstep
function __lockstep_complete
    set -l words (commandline -opc) (commandline -ct)
    set -e words[1]
    for line in (lockstep __complete $words 2>/dev/null)
        switch $line
            case ':files' ':dirs'
                __fish_complete_path (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c lockstep -f -a '(__lockstep_complete)'
)";

StatusOr<int> PrintScript(const Cli& cli, const std::string& shell) {
  *cli.env->out << CompletionScript(shell);
  return 0;
}

}  // namespace

std::string CompletionScript(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return "";
}

Command CompletionCommand(Cli* cli) {
  auto shell = std::make_shared<std::string>();
  Command command = LeafCommand(
      "completion", "Print a shell's completion script",
      "  source <(lockstep completion bash)\n"
      "  lockstep completion zsh > ~/.zfunc/_lockstep\n"
      "  lockstep completion fish > ~/.config/fish/completions/lockstep.fish\n"
      "\nNames of jobs and nodes come from the coordinator, within at most"
      "\n300 ms.");
  command.Add("shell", shell.get(), "bash, zsh or fish",
              OneOf({"bash", "zsh", "fish"}), Required);
  command.run = [=] { return PrintScript(*cli, *shell); };
  return command;
}

}  // namespace lockstep::cli
