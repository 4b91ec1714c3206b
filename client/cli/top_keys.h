// What keys do to the display of `lockstep top`. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_KEYS_H_
#define LOCKSTEP_CLIENT_CLI_TOP_KEYS_H_

#include "client/cli/terminal.h"
#include "client/cli/top.h"

namespace lockstep::cli {

// Changes `view`. `height`: of the screen. Returns false if the user quits.
bool PressTopKey(const KeyPress& press, int height, TopView* view);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TOP_KEYS_H_
