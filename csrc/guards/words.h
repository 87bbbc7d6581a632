// The vocabulary of facts: each word starts with a tag, so that words of different kinds never agree.
//
// Words can be read back: trident/report/words.py follows the walker's order to say in words what a
// sequence of them holds, and its test fails where the two part.
#pragma once

#include <cstdint>

namespace trident::guards {

enum class Tag : uint8_t {
  kNone = 1,
  kTrue,
  kFalse,
  kInt,      // next word: value
  kBigInt,   // next words: decimal digits as bytes
  kFloat,    // next word: IEEE bits
  kComplex,  // next two words
  kString,   // length, then its bytes
  kBytes,
  kNumpyScalar,  // number of bytes, then these; preceded by kType
  kIdentity,     // next word: address
  kTuple,        // length; preceded by kType for subclasses
  kList,
  kDeque,  // length; next word: the greatest length, or -1
  kDict,
  kSet,
  kObject,
  kSlots,
  kMissing,          // an unset slot or an empty cell
  kType,             // next words: address of the type and, for class statements, its epoch
  kClass,            // a class as a value: its epoch, then its state
  kClassAttributes,  // number of attributes; a name and a value each follow
  kAttributes,       // attributes of a tensor or function follow, as a dictionary
  kWeakRef,          // the object follows
  kOrder,  // of an ordered dictionary whose order is not that of insertion: next words, positions
  kMethod,
  kFunction,
  kGlobals,  // number of globals that a function names; a name and a value each follow
  kPartial,
  kDevice,
  kRange,
  kReference,  // a container met before in this walk, by its position
  kTensor,
  kSameTensor,  // a tensor met before in this walk, by its position
  kCall,        // positional and keyword counts
  kEnvironment,
  kState,       // an interned state
  kOpenState,   // a state but for some of its words, which follow
  kClosedList,  // a list of the state whose contents are no part of it
};

inline constexpr uint64_t tagged(Tag tag, uint64_t payload = 0) {
  return static_cast<uint64_t>(tag) << 56 | (payload & 0x00ffffffffffffffull);
}

}  // namespace trident::guards
