//! The common methods of bounded and unbounded channels.

/// Implements the common methods of a sender, except sending, and all methods of a weak one. Usage:
/// `sender!(sender, weak sender)`.
macro_rules! sender {
    ($sender:ident, $weak:ident) => {
        impl<T> $sender<T> {
            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::closed`].")]
            pub async fn closed(&self) {
                self.end.wait(self.inner.closed()).await;
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::is_closed`].")]
            pub fn is_closed(&self) -> bool {
                self.inner.is_closed()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::same_channel`].")]
            pub fn same_channel(&self, other: &Self) -> bool {
                self.inner.same_channel(&other.inner)
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::downgrade`].")]
            #[must_use = "the sender is unchanged"]
            pub fn downgrade(&self) -> $weak<T> {
                $weak {
                    signals: self.end.0.clone(),
                    inner: self.inner.downgrade(),
                }
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::strong_count`].")]
            pub fn strong_count(&self) -> usize {
                self.inner.strong_count()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($sender), "::weak_count`].")]
            pub fn weak_count(&self) -> usize {
                self.inner.weak_count()
            }
        }

        impl<T> Clone for $sender<T> {
            fn clone(&self) -> Self {
                Self {
                    end: self.end.clone(),
                    inner: self.inner.clone(),
                }
            }
        }

        impl<T> std::fmt::Debug for $sender<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.inner.fmt(f)
            }
        }

        impl<T> $weak<T> {
            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($weak), "::upgrade`].")]
            pub fn upgrade(&self) -> Option<$sender<T>> {
                let inner = self.inner.upgrade()?;
                Some($sender {
                    end: super::SendingEnd(self.signals.clone()),
                    inner,
                })
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($weak), "::strong_count`].")]
            pub fn strong_count(&self) -> usize {
                self.inner.strong_count()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($weak), "::weak_count`].")]
            pub fn weak_count(&self) -> usize {
                self.inner.weak_count()
            }
        }

        impl<T> Clone for $weak<T> {
            fn clone(&self) -> Self {
                Self {
                    signals: self.signals.clone(),
                    inner: self.inner.clone(),
                }
            }
        }

        impl<T> std::fmt::Debug for $weak<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}

/// Implements the common methods of a receiver. Usage: `receiver!(receiver)`.
macro_rules! receiver {
    ($receiver:ident) => {
        impl<T> $receiver<T> {
            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::recv`].")]
            pub async fn recv(&mut self) -> Option<T> {
                let inner = &mut self.inner;
                self.end.wait(|context| inner.poll_recv(context)).await
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::recv_many`].")]
            pub async fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                let inner = &mut self.inner;
                self.end
                    .wait(|context| inner.poll_recv_many(context, buffer, limit))
                    .await
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::try_recv`].")]
            ///
            /// # Errors
            /// Fails if no message is available.
            #[inline]
            pub fn try_recv(&mut self) -> Result<T, super::error::TryRecvError> {
                self.end.receives();
                self.inner.try_recv()
            }

            #[doc = concat!(
                "Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::blocking_recv`].",
            )]
            ///
            /// # Panics
            /// Panics if the thread executes tasks.
            #[track_caller]
            pub fn blocking_recv(&mut self) -> Option<T> {
                let wait = self.end.wait_blocking();
                let received = self.inner.blocking_recv();
                wait.end();
                received
            }

            #[doc = concat!(
                "Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::blocking_recv_many`].",
            )]
            ///
            /// # Panics
            /// Panics if the thread executes tasks.
            #[track_caller]
            pub fn blocking_recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                let wait = self.end.wait_blocking();
                let received = self.inner.blocking_recv_many(buffer, limit);
                wait.end();
                received
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::close`].")]
            pub fn close(&mut self) {
                self.end.receives();
                self.inner.close();
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::is_closed`].")]
            pub fn is_closed(&self) -> bool {
                self.inner.is_closed()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::is_empty`].")]
            pub fn is_empty(&self) -> bool {
                self.inner.is_empty()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::len`].")]
            pub fn len(&self) -> usize {
                self.inner.len()
            }

            #[doc = concat!("Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::poll_recv`].")]
            pub fn poll_recv(
                &mut self,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<T>> {
                self.end.receives();
                self.inner.poll_recv(context)
            }

            #[doc = concat!(
                "Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::poll_recv_many`].",
            )]
            pub fn poll_recv_many(
                &mut self,
                context: &mut std::task::Context<'_>,
                buffer: &mut Vec<T>,
                limit: usize,
            ) -> std::task::Poll<usize> {
                self.end.receives();
                self.inner.poll_recv_many(context, buffer, limit)
            }

            #[doc = concat!(
                "Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::sender_strong_count`].",
            )]
            pub fn sender_strong_count(&self) -> usize {
                self.inner.sender_strong_count()
            }

            #[doc = concat!(
                "Behaves like [`tokio::sync::mpsc::", stringify!($receiver), "::sender_weak_count`].",
            )]
            pub fn sender_weak_count(&self) -> usize {
                self.inner.sender_weak_count()
            }
        }

        impl<T> std::fmt::Debug for $receiver<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}

pub(super) use {receiver, sender};
