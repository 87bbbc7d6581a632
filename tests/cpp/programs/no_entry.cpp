// A shared library that is no host program.
extern "C" __attribute__((visibility("default"))) int unrelated() { return 0; }
