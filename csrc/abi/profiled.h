// Marks the functions that profiles tell apart.
#pragma once

// Keeps a function's name in the symbol table of a stripped library, and its calls visible. Protected:
// calls inside the library still go straight to it.
#define TRIDENT_PROFILED __attribute__((noinline, visibility("protected")))
