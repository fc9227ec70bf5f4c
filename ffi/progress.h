// Keeps messages moving while this process is in no collective.
#ifndef PCCL_FFI_PROGRESS_H_
#define PCCL_FFI_PROGRESS_H_

namespace pccl {

// MPI moves data inside its calls only: what a peer has sent may be complete here and still not
// there, until we call MPI again. So a thread does, often just after a message and rarely later;
// it also answers peers that are late. For all worlds, those of later too.
void StartProgress();
// Says that messages have been sent or received. Cheap.
void NoteMessages();
// Ends the thread, and with it the use of MPI; called by MPI when it is finalised.
void StopProgress();
// Whether MPI must not be called any more.
bool ProgressHasStopped();

}  // namespace pccl

#endif  // PCCL_FFI_PROGRESS_H_
