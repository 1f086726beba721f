//! The methods of a wrapper's `BlockDevice` that the device `below` it answers.

/// Its shape, and the operations that are named.
macro_rules! below {
    ($($operation:ident),*) => {
        fn size_bytes(&self) -> u64 {
            self.below.size_bytes()
        }

        fn block_bytes(&self) -> u32 {
            self.below.block_bytes()
        }

        fn describe(&self) -> String {
            self.below.describe()
        }

        fn counters(&self) -> &::floe_device::Counters {
            self.below.counters()
        }

        $(below!(@$operation);)*
    };
    (@read) => {
        fn read(
            &self,
            at: u64,
            buf: ::floe_device::IoBuf,
        ) -> ::floe_device::OpFuture<::floe_device::IoBuf> {
            self.below.read(at, buf)
        }
    };
    (@write_zeroes) => {
        fn write_zeroes(&self, range: ::std::ops::Range<u64>) -> ::floe_device::OpFuture<()> {
            self.below.write_zeroes(range)
        }
    };
    (@discard) => {
        fn discard(&self, range: ::std::ops::Range<u64>) -> ::floe_device::OpFuture<()> {
            self.below.discard(range)
        }
    };
    (@flush) => {
        fn flush(&self) -> ::floe_device::OpFuture<()> {
            self.below.flush()
        }
    };
}

pub(super) use below;
