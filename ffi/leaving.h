// How a process leaves the program when not everything is well.
#ifndef PCCL_FFI_LEAVING_H_
#define PCCL_FFI_LEAVING_H_

#include <string>

namespace pccl {

// Remembers that something to be done with other processes has failed here.
void NoteFailure();

// To be called when the program ends, before anything that waits for the other processes:
// jax.distributed and MPI both do, and neither returns where one of them is gone or still waits
// for us. `reason` is the exception that ends the program, or "".
//
// With a reason the others are told, so that nobody waits for this process. With a reason, after
// a failure, or where a process is gone, this one is ended with status 1 if it has not ended by
// itself after PCCL_EXIT_S seconds (10).
void Leave(const std::string& reason);

}  // namespace pccl

#endif  // PCCL_FFI_LEAVING_H_
