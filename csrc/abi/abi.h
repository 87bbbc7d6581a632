// The C interface between generated host programs and the Trident runtime.
//
// This is the only header that generated code includes: plain C types, no ATen. A host program
// exports `trident_program_entry`, which takes the runtime's function table and returns a static
// description of the program. Every function that can fail returns a status; on failure the error
// is already pending in the calling thread and the program must return that status at once.
//
// Ownership: a `trident_tensor` is borrowed unless a comment says "owned". Owned tensors live in
// transient slots of the frame; the runtime releases what is left there when `run` returns.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRIDENT_ABI_VERSION 5u

typedef int32_t trident_status;  // 0: done; anything else: an error is pending in this thread

// An at::TensorImpl. NULL stands for an absent optional tensor.
typedef struct trident_tensor_s* trident_tensor;

// A Python number given to an operator parameter of type Scalar.
typedef enum trident_scalar_kind {
  TRIDENT_SCALAR_BOOL = 0,
  TRIDENT_SCALAR_INT = 1,
  TRIDENT_SCALAR_FLOAT = 2,
} trident_scalar_kind;

typedef struct trident_scalar {
  int64_t kind;  // trident_scalar_kind
  union {
    int64_t i;  // bool and int
    double f;
  } value;
} trident_scalar;

// c10::DeviceType and device index (-1: the current device of that type).
typedef struct trident_device {
  int32_t type;
  int32_t index;
} trident_device;

// Arguments of a boxed operator call.
typedef enum trident_value_kind {
  TRIDENT_VALUE_NONE = 0,
  TRIDENT_VALUE_TENSOR = 1,
  TRIDENT_VALUE_INT = 2,  // int, and the enums dtype, layout, memory_format by their c10 value
  TRIDENT_VALUE_FLOAT = 3,
  TRIDENT_VALUE_BOOL = 4,
  TRIDENT_VALUE_STRING = 5,
  TRIDENT_VALUE_DEVICE = 6,
  TRIDENT_VALUE_INT_LIST = 7,
  TRIDENT_VALUE_FLOAT_LIST = 8,
  TRIDENT_VALUE_BOOL_LIST = 9,     // as int64_t, 0 or 1
  TRIDENT_VALUE_TENSOR_LIST = 10,  // NULL elements are None
} trident_value_kind;

typedef struct trident_value {
  uint32_t kind;    // trident_value_kind
  uint32_t length;  // of a list
  union {
    trident_tensor tensor;
    int64_t i;
    double f;
    const char* string;
    trident_device device;
    const int64_t* ints;
    const double* floats;
    const trident_tensor* tensors;
  } as;
} trident_value;

// A tensor whose geometry is fixed at compile time. Sizes and strides count elements.
typedef struct trident_layout {
  int32_t dtype;  // c10::ScalarType
  int32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t
      offset;  // planned tensors: bytes from the arena's base; views: elements from the base tensor's first
} trident_layout;

// Where one parameter of a kernel launch gets its value from.
typedef enum trident_param_source {
  TRIDENT_PARAM_CONSTANT = 0,  // `value` holds the bits
  TRIDENT_PARAM_PLANNED = 1,   // the address of planned slot `value`, written once per frame
  TRIDENT_PARAM_RUNTIME = 2,   // written by `run` before each launch
  // The same, an address in the memory of input or output `value`, which nothing but launches
  // touches; an output's is fresh. So a captured graph works on other memory once all of these
  // parameters have its address.
  TRIDENT_PARAM_INPUT = 3,
  TRIDENT_PARAM_OUTPUT = 4,
} trident_param_source;

typedef struct trident_param {
  int32_t source;
  uint64_t value;
} trident_param;

// One Triton launch, as it stands in the program. `kernel` indexes the kernels the program is
// loaded with; parameters follow the order of the compiled kernel's non-constexpr parameters.
// Where Triton would compile other variants of the kernel for other values of the arguments, the
// variant is chosen per call by `num_facts` facts, `kernel` says nothing, and the parameters are
// those of all variants together: a variant takes some of them.
typedef struct trident_launch_record {
  uint32_t kernel;
  uint32_t num_params;
  const trident_param* params;
  uint32_t grid[3];
  uint32_t num_facts;  // at most 64
} trident_launch_record;

// The mutable side of a launch, owned by the frame. Values are little-endian: a parameter
// narrower than 64 bits is read from the low bytes.
typedef struct trident_launch {
  uint64_t* values;
  uint32_t grid[3];
} trident_launch;

typedef struct trident_frame {
  const trident_tensor* inputs;  // borrowed, in the program's input order
  trident_tensor*
      slots;  // [0, num_planned): planned tensors; then transient slots (owned, NULL at rest)
  trident_tensor* outputs;  // `run` stores owned tensors; the caller takes them
  trident_launch* launches;
  const int64_t* symbols;  // this call's symbolic sizes and integers, and the bits of its doubles
  const trident_tensor* number_tensors;  // borrowed, made of the program's `number_tensors`
  // How far the call has come, 0 at its begin: before an operator that may raise `run` stores which
  // changes of Python objects the call's code had made by then.
  uint32_t stage;
} trident_frame;

// What the runtime offers to host programs.
typedef struct trident_api {
  uint32_t abi_version;
  // Fresh memory for a tensor that outlives the call; stores an owned tensor in *out. Runs on the
  // program's device, or on the CPU where `on_cpu` is set. `offset` of the layout is ignored.
  trident_status (*allocate)(trident_frame*, const trident_layout*, int32_t on_cpu,
                             trident_tensor* out);
  // An owned view over base's storage. `escapes`: the caller will see it, so it gets the view
  // metadata that eager gives. A dtype other than base's is an error.
  trident_status (*view)(trident_tensor base, const trident_layout*, int32_t escapes,
                         trident_tensor* out);
  // A second owned reference.
  trident_tensor (*retain)(trident_tensor);
  // Releases the tensor in a transient slot and sets the slot to NULL.
  void (*release)(trident_tensor* slot);
  void* (*data)(trident_tensor);  // address of the first element; NULL where there is none
  trident_status (*launch)(trident_frame*, uint32_t launch);
  // Calls operator `op` of the program's boxed list; results are owned, in schema order.
  // Results of in-place and out= overloads are not returned.
  trident_status (*call_boxed)(trident_frame*, uint32_t op, const trident_value* args,
                               uint32_t num_args, trident_tensor* results, uint32_t num_results);
  // An error unless a tensor that operator `op` gave is what the program was compiled for: dtype,
  // sizes, strides, device, and the address modulo 16. `offset` of the layout is in elements.
  trident_status (*expect)(trident_frame*, trident_tensor, const trident_layout*, int32_t on_cpu,
                           const char* op);
  // Leaves a RuntimeError with this message pending and returns its status.
  trident_status (*fail)(const char* message);
} trident_api;

// A typed operator that the program calls, resolved when the program is loaded.
typedef struct trident_import {
  const char* op;      // overload name without namespace, "mm.out", "relu"
  const char* device;  // "cpu" or "cuda"
  void** target;       // receives the shim's address
} trident_import;

typedef struct trident_program {
  uint32_t abi_version;
  const char* name;
  trident_device device;  // where planned tensors and launches live
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t num_planned;
  uint32_t num_slots;  // planned and transient together
  uint32_t num_symbols;
  uint64_t arena_bytes;
  const trident_layout* planned;  // num_planned
  uint32_t num_launches;
  const trident_launch_record* launches;
  uint32_t num_imports;
  const trident_import* imports;
  uint32_t num_boxed;
  const char* const*
      boxed;  // "aten::index_copy_" or "aten::mm.out", resolved through the dispatcher
  // Python numbers that stand for tensors, `x * 2.0`: made once into the tensors that PyTorch makes of
  // them for each call, of no dimension and without weight in type promotion.
  uint32_t num_number_tensors;
  const trident_scalar* number_tensors;
  uint32_t calls_typed;  // operator calls per run, for the statistics
  uint32_t calls_boxed;
  // The residual guard over symbols; NULL where nothing is left to check. Returns 1 if it holds.
  int32_t (*guard)(const int64_t* symbols);
  // Per launch, the facts that hold of it: bit i is fact i. NULL where no launch has facts.
  void (*choose)(const int64_t* symbols, uint64_t* choices);
  // The numbers in the call's result and effects: integers, or the bits of doubles.
  uint32_t num_numbers;
  void (*compute)(const int64_t* symbols, int64_t* numbers);  // NULL where there are none
  trident_status (*run)(trident_frame*);
  // Stores those outputs that have been made, as the end of `run` does, and leaves the others NULL.
  // NULL where a call that raises has changed nothing.
  trident_status (*give)(trident_frame*);
} trident_program;

typedef const trident_program* (*trident_program_entry_fn)(const trident_api*);
#define TRIDENT_PROGRAM_ENTRY "trident_program_entry"

#define TRIDENT_TRY(call)                                  \
  do {                                                     \
    const trident_status status_ = (call);                 \
    if (__builtin_expect(status_ != 0, 0)) return status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
