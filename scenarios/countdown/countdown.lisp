;;;; Counts down, in one thread or split over several, or over processes.
;;;;
;;;; Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this
;;;; folder.

(require :sb-posix)

(defun countdown (n)
  (loop while (plusp n) do (decf n)))

(defun clock ()
  (multiple-value-bind (seconds microseconds) (sb-ext:get-time-of-day)
    (+ seconds (/ microseconds 1d6))))

(defun argument (name default)
  (let ((found (member name sb-ext:*posix-argv* :test #'string=)))
    (if found (second found) default)))

(defun run (mode workers work)
  (let ((part (floor work workers)))
    (cond ((string= mode "sequential") (countdown work))
          ((string= mode "thread")
           (mapc #'sb-thread:join-thread
                 (loop repeat workers
                       collect (sb-thread:make-thread #'countdown :arguments (list part)))))
          (t
           (loop repeat workers
                 do (when (zerop (sb-posix:fork))
                      (countdown part)
                      (sb-ext:exit :code 0 :abort t)))
           (loop repeat workers
                 do (unless (zerop (nth-value 1 (sb-posix:wait)))
                      (error "a child failed")))))))

(defun main ()
  (let ((begun (clock)))
    (run (argument "--mode" "sequential")
         (parse-integer (argument "--workers" "1"))
         (parse-integer (argument "--work" "100000000")))
    (format t "{\"elapsed_s\": ~,9f, \"gc_s\": ~,6f}~%" (- (clock) begun)
            (/ sb-ext:*gc-run-time* internal-time-units-per-second))))
