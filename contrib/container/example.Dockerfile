# An application whose counts survive the out-of-memory killer: in /var/plimsoll, which should be a volume.
# The library `libgcc_s.so.1` and glibc must be in the image, as they are in this one.
FROM debian:bookworm-slim
COPY --from=plimsoll /plimsoll /usr/local/bin/plimsoll
COPY service /usr/local/bin/service
RUN install -d -o 1000 -g 1000 /var/plimsoll
USER 1000:1000
ENTRYPOINT ["plimsoll", "run", "--quiet", "--postmortem=/var/plimsoll", "--"]
CMD ["service"]
