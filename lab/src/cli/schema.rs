use crate::exit::Exit;
use crate::scenario::schema;

pub(super) fn print() -> Result<u8, Exit> {
    println!("{:#}", schema());
    Ok(0)
}
