//! How a request leaves the database: which URL may be named, which address may be dialled, how the message is signed
//! and how it is sent within one deadline that no receiver can extend. Knows nothing of Postgres, so that all of it can
//! be tested against hostile receivers without a server.
mod address;
mod blocked;
mod connect;
mod deadline;
mod header;
mod http1;
mod mask;
mod policy;
mod resolve;
mod retry_after;
mod send;
mod share;
mod sign;
mod trust;
mod url_guard;

pub use address::{Cidr, check_addresses, is_public};
pub use blocked::Blocked;
pub use header::{HeaderError, check_header};
pub use mask::{MASKED, Mask};
pub use policy::{HostPattern, Policy, Rule};
pub use resolve::{Resolve, SystemNames};
pub use retry_after::retry_after;
pub use send::{Network, Outcome, Request, send};
pub use share::Share;
pub use sign::{Key, sign};
pub use trust::{TrustError, client_config};
pub use url_guard::{Target, check_url};
