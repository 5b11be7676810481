//! Numbers of Postgres that have no symbol to compile against are those of the server that the tests run on.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use std::ffi::CStr;

    use pgrx::pg_sys;
    use pgrx::prelude::*;

    use crate::signal::shmem::addin_shmem_init_lock;

    #[pg_test]
    #[allow(unsafe_code)]
    fn the_lock_under_which_shared_memory_is_made_is_addin_shmem_init() {
        const CLASS_OF_LWLOCKS: u32 = 0x0100_0000;
        // SAFETY: the lock is in the server's main array; the name is a constant of the server.
        let name = unsafe {
            let number = (*addin_shmem_init_lock()).tranche;
            CStr::from_ptr(pg_sys::GetLWLockIdentifier(CLASS_OF_LWLOCKS, number))
        };
        assert_eq!(name.to_str(), Ok("AddinShmemInit"));
    }
}
