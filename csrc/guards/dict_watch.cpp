#include "guards/dict_watch.h"

namespace trident::guards {

#if PY_VERSION_HEX >= 0x030c0000

namespace {

uint64_t changes = 0;  // the interpreter lock guards it

int note(PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) {
  ++changes;
  return 0;
}

}  // namespace

void count_changes(PyObject* dict) {
  static const int watcher = PyDict_AddWatcher(&note);  // one of the eight that there are
  if (watcher < 0 || PyDict_Watch(watcher, dict) < 0) throw PythonError();
}

uint64_t num_dict_changes() { return changes; }

#endif

}  // namespace trident::guards
